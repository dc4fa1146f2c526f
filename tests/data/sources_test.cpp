// The data sets that a recipe can name, on files that the tests write.
#include "lockstep/data/sources.h"

#include <numeric>

#include "lockstep/data/assumed.h"
#include "lockstep/data/open.h"
#include "tests/data/image_files.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using files::TemporaryDirectory;
using testing::HasSubstr;
using Path = std::filesystem::path;

// A record of CIFAR: labels, then planes filled with r, g and b.
std::string record(const std::string& labels, char r, char g, char b) {
  return labels + std::string(1024, r) + std::string(1024, g) + std::string(1024, b);
}

void write_cifar10(const Path& folder, char last_label = 9) {
  std::filesystem::create_directories(folder);
  for (int i = 1; i <= 5; ++i) {
    const char n = static_cast<char>(i);
    test::write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"),
                     record({n}, n, 2, 3) + record({last_label}, n, 5, 6));
  }
  test::write_file(folder / "test_batch.bin", record({7}, 1, 2, 3));
}

TEST(Cifar10, ReadsAllBatchesInOrder) {
  const TemporaryDirectory dir;
  write_cifar10(dir.path() / "cifar-10-batches-bin");  // as the archive unpacks
  const config::DataConfig config{.name = "cifar10", .dir = dir.path()};
  const auto train = open(config, Split::train);
  ASSERT_EQ(train->size(), 10);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(train->spec().num_classes, 10);
  ASSERT_EQ(train->spec().channels.size(), 3u);
  const auto x = test::sample_of(*train, {.index = 6});  // of the fourth file
  EXPECT_TRUE(x[0].eq(4).all().item<bool>()) << "red plane";
  EXPECT_EQ(x[2][31][31].item<int>(), 3);
  EXPECT_EQ(train->class_of(6), 4);
  EXPECT_EQ(open(config, Split::eval)->class_of(0), 7);
}

TEST(Cifar10, TakesTheFirstSamplesAcrossFiles) {
  const TemporaryDirectory dir;
  write_cifar10(dir.path());
  const auto three =
      open({.name = "cifar10", .dir = dir.path(), .train_samples = 3}, Split::train);
  EXPECT_EQ(three->size(), 3);
  EXPECT_EQ(three->class_of(2), 2);
}

TEST(Cifar10, DamagedFilesAreNamed) {
  const TemporaryDirectory dir;
  const config::DataConfig config{.name = "cifar10", .dir = dir.path()};
  const auto text = [&] {
    return test::error_text(Fault::io, [&] { open(config, Split::train); });
  };
  EXPECT_THAT(text(), HasSubstr("data_batch_1.bin' is missing"));
  write_cifar10(dir.path(), /*last_label=*/10);
  EXPECT_THAT(text(), HasSubstr("data_batch_1.bin' has the label 10 at sample 1"));
  write_cifar10(dir.path());
  test::write_file(dir.path() / "data_batch_3.bin", record({1}, 0, 0, 0) + "x");
  EXPECT_THAT(text(), HasSubstr("data_batch_3.bin' has 3074 bytes"));
  std::filesystem::remove(dir.path() / "data_batch_3.bin");
  EXPECT_THAT(text(), HasSubstr("data_batch_3.bin"));
}

TEST(Cifar100, HasTheCoarseClassAsAField) {
  const TemporaryDirectory dir;
  test::write_file(dir.path() / "train.bin",
                   record({19, 99}, 1, 2, 3) + record({4, 30}, 4, 5, 6));
  const auto train = open({.name = "cifar100", .dir = dir.path()}, Split::train);
  EXPECT_EQ(train->spec().num_classes, 100);
  Loader loader(*train, {.batch = 2, .shuffle = false});
  const auto* batch = loader.next();
  EXPECT_TRUE(batch->targets.equal(torch::tensor({99, 30}, torch::kInt64)));
  EXPECT_TRUE(batch->at("coarse").equal(torch::tensor({19, 4}, torch::kInt64)));
  EXPECT_EQ(batch->inputs[1][2][0][0].item<int>(), 6);
}

// Two classes; the second has one PNG among its JPEGs.
struct ImageTree {
  explicit ImageTree(std::int64_t height = 24, std::int64_t width = 32) {
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"ant", "bee"}) {
        std::filesystem::create_directories(dir.path() / part / name);
        for (int i = 0; i < 3; ++i) {
          const auto pixels = test::picture(height, width, i);
          const bool png = std::string(name) == "bee" && i == 1;
          test::write_file(
              dir.path() / part / name / (std::to_string(i) + (png ? ".PNG" : ".jpeg")),
              png ? test::png_bytes(pixels) : test::jpeg_bytes(pixels));
        }
      }
    }
    test::write_file(dir.path() / "train" / "ant" / "notes.txt", "not an image");
  }
  config::DataConfig config(std::int64_t resize = 0) const {
    return {.name = "image_folder", .dir = dir.path(), .resize = resize};
  }
  TemporaryDirectory dir;
};

TEST(ImageFolder, ClassesAreFoldersAndPixelsAreThoseOfTheFile) {
  const ImageTree tree;
  const auto train = open(tree.config(), Split::train);
  ASSERT_EQ(train->size(), 6);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{3, 24, 32}));
  EXPECT_EQ(train->spec().num_classes, 2);
  EXPECT_EQ(train->class_of(2), 0);
  EXPECT_EQ(train->class_of(3), 1);
  const auto png = test::sample_of(*train, {.index = 4});
  EXPECT_TRUE(png.equal(test::picture(24, 32, 1).permute({2, 0, 1})));  // lossless
  const auto jpeg = test::sample_of(*train, {.index = 2});
  const auto difference =
      (jpeg.to(torch::kFloat32) - test::picture(24, 32, 2).permute({2, 0, 1})).abs();
  EXPECT_LT(difference.mean().item<double>(), 2);  // quality 95 of a smooth picture
}

TEST(ImageFolder, ResizedImagesAreTheMiddleSquare) {
  const ImageTree tree(200, 320);
  for (const std::int64_t side : {200, 64, 23, 256}) {  // JPEG scales in eighths
    const auto train = open(tree.config(side), Split::train);
    EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{3, side, side}));
    const auto square = test::picture(200, 320, 1).narrow(1, 60, 200);
    const auto expected = at::_upsample_bilinear2d_aa(
        square.permute({2, 0, 1}).to(torch::kFloat32).unsqueeze(0), {side, side},
        false)[0];
    for (const std::int64_t index : {1, 4}) {  // JPEG and PNG of the same picture
      const auto x = test::sample_of(*train, {.index = index}).to(torch::kFloat32);
      // A JPEG is decoded to a size near by first; the picture is smooth.
      EXPECT_LT((x - expected).abs().mean().item<double>(), 2) << side;
    }
  }
}

TEST(ImageFolder, AFewSamplesKeepTheSharesOfTheClasses) {
  const ImageTree tree;
  auto config = tree.config();
  config.train_samples = 2;
  const auto train = open(config, Split::train);
  ASSERT_EQ(train->size(), 2);
  EXPECT_EQ(train->class_of(0), 0);
  EXPECT_EQ(train->class_of(1), 1);
}

TEST(ImageFolder, AnImageOfAnotherSizeIsNamedWithBothSizes) {
  const ImageTree tree;
  test::write_file(tree.dir.path() / "train/bee/9.jpg",
                   test::jpeg_bytes(test::picture(20, 32)));
  const auto train = open(tree.config(), Split::train);
  const auto text =
      test::error_text(Fault::io, [&] { test::sample_of(*train, {.index = 6}); });
  EXPECT_THAT(text, HasSubstr("train/bee/9.jpg"));
  EXPECT_THAT(text, HasSubstr("20 x 32 pixels, the first image has 24 x 32"));
  EXPECT_THAT(text, HasSubstr("data.resize"));
}

TEST(ImageFolder, DamagedImagesAreNamed) {
  const ImageTree tree;
  const auto jpeg = test::jpeg_bytes(test::picture(24, 32));
  const auto png = test::png_bytes(test::picture(24, 32));
  const auto bee = tree.dir.path() / "train" / "bee";
  test::write_file(bee / "6.jpg", jpeg.substr(0, jpeg.size() / 2));
  test::write_file(bee / "7.png", png.substr(0, png.size() / 2));
  test::write_file(bee / "5.jpg", jpeg.substr(0, jpeg.size() - 40));  // pixels only
  test::write_file(bee / "8.jpg", "GIF89a and so on");
  test::write_file(bee / "9.jpg", "");
  const auto train = open(tree.config(), Split::train);
  const auto text = [&](std::int64_t index) {
    return test::error_text(Fault::io,
                            [&] { test::sample_of(*train, {.index = index}); });
  };
  EXPECT_THAT(text(6), HasSubstr("bee/5.jpg': it is a damaged JPEG"));
  EXPECT_THAT(text(7), HasSubstr("bee/6.jpg': it is a damaged JPEG"));
  EXPECT_THAT(text(8), HasSubstr("bee/7.png': it is a damaged PNG"));
  EXPECT_THAT(text(9), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(text(10), HasSubstr("neither a JPEG nor a PNG"));
}

TEST(ImageFolder, BytesThatACameraLeavesBetweenMarkersDoNoHarm) {
  const ImageTree tree;
  auto jpeg = test::jpeg_bytes(test::picture(24, 32, 2));
  jpeg.insert(jpeg.size() - 2, "abcdef");  // before the end marker
  test::write_file(tree.dir.path() / "train/bee/9.jpg", jpeg);
  const auto train = open(tree.config(), Split::train);
  EXPECT_TRUE(test::sample_of(*train, {.index = 6})
                  .equal(test::sample_of(*train, {.index = 2})));
}

TEST(ImageFolder, WhatIsWrongWithTheFoldersIsSaidBeforeTheFirstSample) {
  const ImageTree tree;
  const auto text = [&](Split split) {
    return test::error_text(Fault::io, [&] { open(tree.config(), split); });
  };
  std::filesystem::create_directories(tree.dir.path() / "val" / "cat");
  EXPECT_THAT(text(Split::eval), HasSubstr("val/cat' is not a class of"));
  std::filesystem::create_directories(tree.dir.path() / "train" / "cat");
  EXPECT_THAT(text(Split::train), HasSubstr("train/cat' has no JPEG or PNG"));
  std::filesystem::remove_all(tree.dir.path() / "val");
  EXPECT_THAT(text(Split::eval), HasSubstr("data.split"));
  std::filesystem::remove_all(tree.dir.path() / "train");
  EXPECT_THAT(text(Split::train), HasSubstr("holds no folders"));
}

template <typename T>
std::string numbers(std::int64_t from, std::int64_t count) {
  std::vector<T> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), static_cast<T>(from));
  return {reinterpret_cast<char*>(list.data()), list.size() * sizeof(T)};
}

std::string header(std::int32_t magic, std::int32_t tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = 1;
  words[2] = tokens;
  return {reinterpret_cast<char*>(words.data()), 1024};
}

struct TokenFiles {
  config::DataConfig config(std::int64_t sequence = 4) const {
    return {.name = "tokens", .dir = dir.path(), .sequence = sequence};
  }
  void write(const std::string& name, const std::string& bytes) const {
    test::write_file(dir.path() / name, bytes);
  }
  TemporaryDirectory dir;
};

TEST(Tokens, TargetsAreTheNextTokensWithAndWithoutHeader) {
  for (const int kind : {0, 1, 2, 3}) {
    const TokenFiles files;
    const auto body =
        kind < 2 ? numbers<std::uint16_t>(100, 14) : numbers<std::uint32_t>(100, 14);
    files.write(
        "my_train.bin",
        kind % 2 == 0 ? body : header(kind == 1 ? 20240520 : 20240801, 14) + body);
    auto config = files.config();
    if (kind == 2) config.token_type = config::TokenType::uint32;
    const auto train = open(config, Split::train);
    ASSERT_EQ(train->size(), 3);  // (14 - 1) / 4
    EXPECT_EQ(train->spec().num_classes, 114);
    Loader loader(*train, {.batch = 3, .shuffle = false});
    const auto* batch = loader.next();
    const auto first = torch::arange(100, 112, torch::kInt64).view({3, 4});
    EXPECT_TRUE(batch->inputs.equal(first)) << kind;
    EXPECT_TRUE(batch->targets.equal(first + 1)) << kind;
  }
}

TEST(Tokens, FilesOfASplitAreReadOneAfterTheOther) {
  const TokenFiles files;
  files.write("web_train_000001.bin", numbers<std::uint16_t>(50, 9));
  files.write("web_train_000000.bin", numbers<std::uint16_t>(0, 12));
  files.write("web_val_000000.bin", numbers<std::uint16_t>(7, 5));
  const auto train = open(files.config(), Split::train);
  ASSERT_EQ(train->size(), 4);  // 2 + 2: no window reaches over the end of a file
  EXPECT_EQ(test::sample_of(*train, {.index = 1})[0].item<int>(), 4);
  EXPECT_EQ(test::sample_of(*train, {.index = 2})[0].item<int>(), 50);
  EXPECT_EQ(open(files.config(), Split::eval)->size(), 1);
  auto two = files.config();
  two.train_samples = 2;
  EXPECT_EQ(open(two, Split::train)->size(), 2);
}

TEST(Tokens, WholeWordsOfANameChooseWhatIsEvaluatedOn) {
  const TokenFiles files;
  files.write("new_testament_train.bin", numbers<std::uint16_t>(0, 9));
  files.write("carnival-train.bin", numbers<std::uint16_t>(0, 9));
  files.write("my.Test.bin", numbers<std::uint16_t>(0, 5));
  EXPECT_EQ(open(files.config(), Split::train)->size(), 4);
  EXPECT_EQ(open(files.config(), Split::eval)->size(), 1);
  for (const char* name : {"val.bin", "a_val_000001.bin", "valid.bin", "dev2.bin"}) {
    EXPECT_TRUE(names_eval(name)) << name;
  }
  for (const char* name : {"testament.bin", "interval.bin", "values_train.bin"}) {
    EXPECT_FALSE(names_eval(name)) << name;
  }
}

TEST(Tokens, WhatIsWrongWithAFileIsSaidBeforeTheFirstSample) {
  const TokenFiles files;
  const auto text = [&](std::int64_t sequence = 4) {
    return test::error_text(Fault::io,
                            [&] { open(files.config(sequence), Split::train); });
  };
  EXPECT_THAT(text(), HasSubstr("no file like *train*.bin"));
  files.write("train.bin", "");
  EXPECT_THAT(text(), HasSubstr("train.bin' is empty"));
  files.write("train.bin", "abc");
  EXPECT_THAT(text(), HasSubstr("3 bytes of tokens, which is not a multiple of 2"));
  files.write("train.bin", numbers<std::uint16_t>(0, 4));
  EXPECT_THAT(text(), HasSubstr("data.sequence + 1 = 5"));
  files.write("train.bin", header(20240520, 900) + numbers<std::uint16_t>(0, 40));
  EXPECT_THAT(text(), HasSubstr("says that it holds 900 tokens, but 40 are there"));
}

TEST(Tokens, ATokenBeyondTheVocabularyIsABadSample) {
  const TokenFiles files;
  files.write("train.bin", numbers<std::uint16_t>(0, 21));
  auto config = files.config();
  config.classes = 18;
  const auto train = open(config, Split::train);
  Loader loader(*train, {.batch = 4, .shuffle = false});
  EXPECT_NE(loader.next(), nullptr);
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              HasSubstr("label 18, the data set has the classes 0 to 17"));
}

TEST(Synthetic, HasTheShapeTypeAndClassesThatWereAskedFor) {
  config::DataConfig config{.name = "synthetic", .classes = 5, .synthetic_samples = 40};
  config.shape = {3, 9, 11};
  const auto bytes = open(config, Split::train);
  EXPECT_EQ(bytes->size(), 40);
  EXPECT_EQ(open(config, Split::eval)->size(), 4);
  const auto x = test::sample_of(*bytes, {.index = 7});
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{3, 9, 11}));
  EXPECT_EQ(bytes->class_of(7), 2);
  EXPECT_TRUE(x.equal(test::sample_of(*bytes, {.index = 7})));
  EXPECT_FALSE(x.equal(test::sample_of(*bytes, {.index = 12})));  // of the same class
  config.dtype = config::SampleType::float32;
  EXPECT_EQ(test::sample_of(*open(config, Split::train), {}).scalar_type(),
            torch::kFloat32);
  config.shape = {70'000};  // more than the noise that is kept
  EXPECT_EQ(test::sample_of(*open(config, Split::train), {}).numel(), 70'000);
}

TEST(Synthetic, WholeNumbersAreTokensWithTheNextAsTarget) {
  config::DataConfig config{
      .name = "synthetic", .classes = 50, .dtype = config::SampleType::int64};
  config.shape = {16};
  const auto tokens = open(config, Split::train);
  Loader loader(*tokens, {.batch = 8});
  const auto* batch = loader.next();
  EXPECT_TRUE(batch->targets.narrow(1, 0, 15).equal(batch->inputs.narrow(1, 1, 15)));
  EXPECT_LT(batch->targets.max().item<int>(), 50);
}

TEST(Synthetic, NeedsAShape) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] { open({.name = "synthetic"}, Split::train); }),
              HasSubstr("data.shape"));
}

TEST(AssumedSamples, AreThoseThatTheFilesHave) {
  const auto real = open({}, Split::train);
  const auto assumed = assumed_samples({});
  ASSERT_TRUE(assumed);
  EXPECT_EQ(assumed->spec.shape, real->spec().shape);
  EXPECT_EQ(assumed->spec.dtype, real->spec().dtype);
  EXPECT_EQ(assumed->spec.num_classes, real->spec().num_classes);
  EXPECT_EQ(assumed->train_samples, real->size());
  const auto images = assumed_samples({.name = "image_folder", .resize = 224});
  ASSERT_TRUE(images);
  EXPECT_EQ(images->spec.shape, (std::vector<std::int64_t>{3, 224, 224}));
  const auto rows = assumed_samples({.name = "tokens", .sequence = 128});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->spec.shape, rows->spec.target_shape);
  EXPECT_TRUE(rows->spec.is_tokens());
  EXPECT_FALSE(assumed_samples({.name = "image_folder"}));
  EXPECT_FALSE(assumed_samples({.name = "csv"}));
}

}  // namespace
}  // namespace lockstep::data
