// Tar shards, written block by block.
#include "lockstep/data/open.h"
#include "tests/data/image_files.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// An entry of a ustar archive.
std::string entry(const std::string& name, const std::string& body) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  std::string size = "00000000000";
  for (auto at = size.size(), left = body.size(); left > 0; left /= 8) {
    size[--at] = static_cast<char>('0' + left % 8);
  }
  put(124, size);
  put(148, "        ");
  put(156, "0");
  put(257, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char letter : header) sum += static_cast<unsigned char>(letter);
  std::string octal = "000000";
  for (auto at = octal.size(); sum > 0; sum /= 8) {
    octal[--at] = static_cast<char>('0' + sum % 8);
  }
  put(148, octal + '\0' + ' ');
  return header + body + std::string((512 - body.size() % 512) % 512, '\0');
}

std::string end() {
  return std::string(1024, '\0');
}

class WebDatasetTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    test::write_file(folder_.path() / name, bytes);
  }
  config::DataConfig config() const {
    return {.name = "webdataset", .dir = folder_.path()};
  }
  std::string error(Split split = Split::train) const {
    return test::error_text(Fault::io, [&] { open(config(), split); });
  }

  files::TemporaryDirectory folder_;
  const std::string image_ = test::png_bytes(test::picture(4, 4));
};

TEST_F(WebDatasetTest, PartsAreToldByTheNamesOfShards) {
  put("train-0.tar", entry("a.png", image_) + entry("a.cls", "cat") +
                         entry("notes", "of no sample") + entry("b.cls", "dog") +
                         entry("b.png", image_) + end());
  put("val-0.tar", entry("c.png", image_) + entry("c.cls", "dog"));
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(train->class_of(1), 1);
  EXPECT_EQ(open(config(), Split::eval)->class_of(0), 1)
      << "classes are the training's";
  put("val-0.tar", entry("c.png", image_) + entry("c.cls", "bird"));
  EXPECT_THAT(error(Split::eval),
              HasSubstr("val-0.tar: c' is of class 'bird', of which there is no"));
}

TEST_F(WebDatasetTest, DamagedShardsAreNamed) {
  EXPECT_THAT(error(), HasSubstr("has no .tar file at all"));
  put("train.tar", "\x1f\x8b and so on");
  EXPECT_THAT(error(), HasSubstr("train.tar' is compressed"));
  const auto whole = entry("a.png", image_) + entry("a.cls", "1");
  put("train.tar", whole.substr(0, 600));
  EXPECT_THAT(error(), HasSubstr("train.tar' is truncated: 'a.png'"));
  auto damaged = whole;
  damaged[3] = 'x';
  put("train.tar", damaged);
  EXPECT_THAT(error(), HasSubstr("train.tar' is not a tar file"));
  put("train.tar", entry("a.png", image_) + end());
  EXPECT_THAT(error(), HasSubstr("train.tar: a' has no file that ends in .cls"));
  put("train.tar", entry("a.txt", "x") + end());
  EXPECT_THAT(error(), HasSubstr("hold no sample: files NAME.jpg, jpeg or png"));
  put("train.tar", entry("a.png", image_) + entry("a.jpg", image_) + end());
  EXPECT_THAT(error(), HasSubstr("'a.jpg' is a second file of its kind"));
}

TEST_F(WebDatasetTest, AnImageThatCanNotBeReadIsABadSample) {
  put("train.tar", entry("a.png", image_) + entry("a.cls", "1") +
                       entry("b.png", "no image") + entry("b.cls", "0") + end());
  const auto train = open(config(), Split::train);
  EXPECT_THAT(
      test::error_text(Fault::io, [&] { test::sample_of(*train, {.index = 1}); }),
      HasSubstr("train.tar: b'"));
}

}  // namespace
}  // namespace lockstep::data
