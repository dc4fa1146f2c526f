// Tar shards, written block by block.
#include "lockstep/data/open.h"
#include "tests/data/image_files.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// An entry of a ustar archive.
std::string entry(const std::string& name, const std::string& body, char kind = '0') {
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
  put(156, std::string(1, kind));
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
  put("train.tar", entry("a.png", image_) + entry("a.cls", " ") + end());
  EXPECT_THAT(error(), HasSubstr("train.tar: a': its class is empty"));
  put("train.tar", entry("a.txt", "x") + end());
  EXPECT_THAT(error(), HasSubstr("hold no sample: files NAME.jpg, jpeg or png"));
  put("train.tar", entry("a.png", image_) + entry("a.jpg", image_) + end());
  EXPECT_THAT(error(), HasSubstr("'a.jpg' is a second file of its kind"));
}

TEST_F(WebDatasetTest, NoSampleIsLeftOutInSilence) {
  const auto first = entry("a.png", image_) + entry("a.cls", "0");
  const auto second = entry("b.png", image_) + entry("b.cls", "1");
  put("train.tar", first + second);
  EXPECT_EQ(open(config(), Split::train)->size(), 2) << "an end is not needed";
  put("train.tar", first + second.substr(0, 100));
  EXPECT_THAT(error(), HasSubstr("train.tar' is truncated at byte"));
  put("train.tar", first + end() + second + end());
  EXPECT_THAT(error(), HasSubstr("has something behind its end at byte"));
}

// A pax header has the size of the file behind it where tar's own field is too small.
TEST_F(WebDatasetTest, ASizeInAPaxHeaderCounts) {
  const auto with = [&](const std::string& line) {
    put("train.tar", entry("a.png", image_) + entry("pax", line, 'x') +
                         entry("a.cls", "17") + end());
  };
  with("9 size=1\n");
  EXPECT_EQ(open(config(), Split::train)->class_of(0), 1) << "one byte of 17";
  with("10 size=-1\n");
  EXPECT_THAT(error(), HasSubstr("has a damaged pax header"));
}

TEST_F(WebDatasetTest, AClassInJsonIsANumberOrAName) {
  auto config = this->config();
  config.table.target = {"json.label"};
  const auto with = [&](const std::string& label) {
    put("train.tar",
        entry("a.png", image_) + entry("a.json", "{\"label\": " + label + "}") + end());
  };
  const auto refusal_of = [&](const std::string& label) {
    with(label);
    return test::error_text(Fault::io, [&] { open(config, Split::train); });
  };
  with("3");
  EXPECT_EQ(open(config, Split::train)->class_of(0), 3);
  with("\"cat\"");
  EXPECT_EQ(open(config, Split::train)->spec().class_names[0], "cat");
  EXPECT_THAT(refusal_of("null"), HasSubstr("of its json is of type null"));
  constexpr std::size_t kDepth = 200'000;  // its text would need that many calls
  EXPECT_THAT(refusal_of(std::string(kDepth, '[') + std::string(kDepth, ']')),
              HasSubstr("is of type array, not a number or a name"));
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
