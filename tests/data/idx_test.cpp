#include "lockstep/data/idx.h"

#include "tests/data/idx_files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class Idx : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(std::int64_t limit = 0, std::int64_t num_classes = 0) {
    return open_idx({.images = images_,
                     .labels = labels_,
                     .limit = limit,
                     .num_classes = num_classes,
                     .mean = 0.25F,
                     .deviation = 0.5F});
  }
  std::string failure() {
    return test::error_text(Fault::io, [&] { open(); });
  }

  files::TemporaryDirectory folder_;
  test::Path images_ = folder_.path() / "images";
  test::Path labels_ = folder_.path() / "labels";
};

TEST_F(Idx, ReadsPlainFiles) {
  test::write_file(images_, test::idx_images(7));
  test::write_file(labels_, test::idx_labels(7));
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 7);
  EXPECT_EQ(dataset->spec().shape, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(dataset->spec().num_classes, 3);
  EXPECT_FLOAT_EQ(dataset->spec().scale * 255 + dataset->spec().shift, 1.5F);  // white
  EXPECT_FLOAT_EQ(dataset->spec().shift, -0.5F);                               // black
  std::vector<std::byte> pixels(6);
  EXPECT_EQ(dataset->read(5, pixels), 2);
  EXPECT_EQ(pixels, std::vector<std::byte>(6, std::byte{5}));
}

TEST_F(Idx, ReadsGzippedFilesToTheSameSamples) {
  images_ += ".gz";
  labels_ += ".gz";
  test::write_gzip(images_, test::idx_images(7));
  test::write_gzip(labels_, test::idx_labels(7));
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 7);
  std::vector<std::byte> pixels(6);
  EXPECT_EQ(dataset->read(4, pixels), 1);
  EXPECT_EQ(pixels, std::vector<std::byte>(6, std::byte{4}));
}

TEST_F(Idx, ALimitKeepsTheFirstSamples) {
  test::write_file(images_, test::idx_images(7));
  test::write_file(labels_, test::idx_labels(7));
  EXPECT_EQ(open(4)->size(), 4);
  EXPECT_EQ(open(100)->size(), 7);
}

TEST_F(Idx, TruncatedImagesAreNamedWithTheNumbers) {
  auto bytes = test::idx_images(7);
  bytes.resize(bytes.size() - 5);
  test::write_file(images_, bytes);
  test::write_file(labels_, test::idx_labels(7));
  const auto message = failure();
  EXPECT_THAT(message, HasSubstr(images_.string()));
  EXPECT_THAT(message, HasSubstr("truncated"));
  EXPECT_THAT(message, HasSubstr("42 bytes, 37 are there"));
}

TEST_F(Idx, TruncatedGzipIsNamed) {
  images_ += ".gz";
  test::write_gzip(images_, test::idx_images(200));
  std::filesystem::resize_file(images_, std::filesystem::file_size(images_) - 12);
  test::write_file(labels_, test::idx_labels(200));
  EXPECT_THAT(failure(), HasSubstr("truncated"));
}

TEST_F(Idx, DamagedGzipIsNamed) {
  images_ += ".gz";
  std::string noise;
  for (int i = 0; i < 6000; ++i) noise += static_cast<char>(i * 7919 >> 3);
  test::write_gzip(images_, test::idx_bytes({1000, 2, 3}, noise));
  auto bytes = test::read_file(images_);
  for (std::size_t i = bytes.size() / 2; i < bytes.size() / 2 + 40; ++i)
    bytes[i] ^= 0x5A;
  test::write_file(images_, bytes);
  test::write_file(labels_, test::idx_labels(1000));
  const auto message = failure();
  EXPECT_THAT(message, HasSubstr(images_.string()));
  EXPECT_THAT(message, testing::AnyOf(HasSubstr("damaged"), HasSubstr("truncated")));
}

TEST_F(Idx, AFileNamedGzThatIsNotGzipIsRefused) {
  images_ += ".gz";
  test::write_file(images_, test::idx_images(7));
  test::write_file(labels_, test::idx_labels(7));
  EXPECT_THAT(failure(), HasSubstr("is not gzip"));
}

TEST_F(Idx, AWrongMagicShowsBoth) {
  test::write_file(images_, test::idx_labels(7));
  test::write_file(labels_, test::idx_labels(7));
  const auto message = failure();
  EXPECT_THAT(message, HasSubstr("its magic is 0 0 8 1"));
  EXPECT_THAT(message, HasSubstr("starts with 0 0 8 3"));
}

TEST_F(Idx, AnEmptyFileIsTruncated) {
  test::write_file(images_, "");
  test::write_file(labels_, test::idx_labels(7));
  EXPECT_THAT(failure(), HasSubstr("truncated"));
}

TEST_F(Idx, CountsThatDifferShowBoth) {
  test::write_file(images_, test::idx_images(7));
  test::write_file(labels_, test::idx_labels(8));
  const auto message = failure();
  EXPECT_THAT(message, HasSubstr("holds 7 images"));
  EXPECT_THAT(message, HasSubstr("holds 8 labels"));
}

TEST_F(Idx, ALabelThatIsNoClassIsRefused) {
  test::write_file(images_, test::idx_images(7));
  test::write_file(labels_, test::idx_labels(7));
  const auto message = test::error_text(Fault::io, [&] { open(0, 2); });
  EXPECT_THAT(message, HasSubstr("label 2"));
  EXPECT_THAT(message, HasSubstr("classes 0 to 1"));
}

// A header that promises exabytes must neither allocate them nor overflow.
TEST_F(Idx, AHeaderThatPromisesTooMuchIsRefused) {
  test::write_file(images_, test::idx_bytes({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, ""));
  test::write_file(labels_, test::idx_labels(7));
  EXPECT_THAT(failure(), HasSubstr("cannot be"));
  test::write_file(images_, test::idx_bytes({0xFFFFFFFF, 20000, 20000}, "short"));
  EXPECT_THAT(failure(), HasSubstr("truncated"));
}

TEST_F(Idx, AMissingFileIsNamed) {
  EXPECT_THAT(failure(), HasSubstr(images_.string()));
}

}  // namespace
}  // namespace lockstep::data
