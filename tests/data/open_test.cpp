#include "lockstep/data/open.h"

#include "tests/data/idx_files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

TEST(Open, FashionMnistIsTheRealOne) {
  const auto train = open({}, Split::train);
  const auto eval = open({}, Split::eval);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(eval->size(), 10000);
  EXPECT_EQ(train->spec().num_classes, 10);
  // Mean and deviation of what a model sees are 0 and 1, as the constants promise.
  double sum = 0;
  double squares = 0;
  std::vector<std::byte> pixels(784);
  for (std::int64_t i = 0; i < train->size(); ++i) {
    train->read(i, pixels);
    for (const auto pixel : pixels) {
      const double x =
          train->spec().scale * static_cast<float>(pixel) + train->spec().shift;
      sum += x;
      squares += x * x;
    }
  }
  const double n = 60000.0 * 784;
  EXPECT_NEAR(sum / n, 0, 1e-3);  // the constants have four digits
  EXPECT_NEAR(squares / n, 1, 2e-3);
}

TEST(Open, SampleLimitsArePerSplit) {
  const config::DataConfig config{.train_samples = 100, .eval_samples = 30};
  EXPECT_EQ(open(config, Split::train)->size(), 100);
  EXPECT_EQ(open(config, Split::eval)->size(), 30);
}

TEST(Open, AMissingDataSetNamesTheFolderAndThePackage) {
  const auto message = test::error_text(
      Fault::io, [] { open({.dir = "/nowhere/at/all"}, Split::train); });
  EXPECT_THAT(message, HasSubstr("/nowhere/at/all/train-images-idx3-ubyte.gz"));
  EXPECT_THAT(message, HasSubstr("dataset-fashion-mnist"));
}

TEST(Open, AnUnknownNameGetsASuggestion) {
  const auto message = test::error_text(
      Fault::config, [] { open({.name = "fashion_mnits"}, Split::train); });
  EXPECT_THAT(message, HasSubstr("did you mean 'fashion_mnist'?"));
}

TEST(Open, AnIdxFolderIsReadAndNeedsItsFolder) {
  const files::TemporaryDirectory folder;
  test::write_gzip(folder.path() / "train-images-idx3-ubyte.gz", test::idx_images(9));
  test::write_file(folder.path() / "train-labels-idx1-ubyte", test::idx_labels(9));
  EXPECT_EQ(open({.name = "idx", .dir = folder.path()}, Split::train)->size(), 9);
  EXPECT_THAT(
      test::error_text(Fault::config, [] { open({.name = "idx"}, Split::train); }),
      HasSubstr("data.dir"));
}

}  // namespace
}  // namespace lockstep::data
