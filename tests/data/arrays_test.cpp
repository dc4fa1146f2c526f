// Arrays of numpy, made by hand and by numpy itself.
#include "lockstep/data/detail/npy.h"
#include "lockstep/data/open.h"
#include "tests/data/support.h"
#include "tests/support/oracle.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Path = std::filesystem::path;

// An .npy file as numpy.save() writes it.
std::string npy(const std::string& descr, const std::string& shape,
                const std::string& values, const std::string& order = "False") {
  auto header = "{'descr': '" + descr + "', 'fortran_order': " + order +
                ", 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() & 0xFF) +
         static_cast<char>(header.size() >> 8) + header + values;
}

class ArraysTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    test::write_file(folder_.path() / name, bytes);
  }
  config::DataConfig config() const {
    return {.name = "arrays", .dir = folder_.path()};
  }
  std::string error(Split split = Split::train) const {
    return test::error_text(Fault::io, [&] { open(config(), split); });
  }
  std::string refusal_of(const std::string& bytes) const {
    put("x_train.npy", bytes);
    return error();
  }

  files::TemporaryDirectory folder_;
};

TEST_F(ArraysTest, BytesOfThreeDimensionsAreImagesOfOneChannel) {
  put("x_train.npy", npy("|u1", "(2, 2, 3)", std::string(12, '\x7f')));
  put("y_train.npy", npy("|u1", "(2,)", std::string("\x00\x01", 2)));
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(train->spec().num_classes, 2);
  EXPECT_FLOAT_EQ(train->spec().scale, 1 / 255.0F);
  EXPECT_EQ(test::sample_of(*train, {.index = 1})[0][1][2].item<int>(), 127);
  EXPECT_THAT(error(Split::eval), HasSubstr("data.split=0.1"));
}

TEST_F(ArraysTest, OtherArraysAreFieldsAndAreNamed) {
  const std::string two_floats("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);  // 1, 2
  put("train/input.npy", npy("<f4", "(2, 1)", two_floats));
  put("train/target.npy", npy("<f4", "(2,)", two_floats));
  put("train/age_years.npy", npy("<f4", "(2,)", two_floats));
  put("train/importance.npy", npy("<f4", "(2,)", two_floats));
  auto config = this->config();
  config.table.weight = "importance";
  const auto train = open(config, Split::train);
  ASSERT_EQ(train->spec().fields.size(), 2u);
  EXPECT_EQ(train->spec().fields[0].name, "age_years");
  EXPECT_EQ(train->spec().fields[1].name, "target_weight");
  EXPECT_EQ(train->spec().target_dtype, torch::kFloat32);
  config.table.input = {"age"};
  EXPECT_THAT(test::error_text(Fault::io, [&] { open(config, Split::train); }),
              HasSubstr("there is no array 'age' to train on; there are age_years"));
}

// A file may have an array called "input" that is not the input.
TEST_F(ArraysTest, TheRecipeNamesRolesWhateverOtherArraysAreCalled) {
  const std::string one("\x00\x00\x80\x3f", 4), two("\x00\x00\x00\x40", 4);
  for (const auto* name : {"a", "b", "c"}) {
    put(std::string("train/") + name + ".npy", npy("<f4", "(1,)", one));
  }
  for (const auto* name : {"input", "target", "target_weight"}) {
    put(std::string("train/") + name + ".npy", npy("<f4", "(1,)", two));
  }
  auto config = this->config();
  config.table = {.input = {"a"}, .target = {"b"}, .weight = "c"};
  const auto train = open(config, Split::train);
  ASSERT_EQ(train->spec().fields.size(), 1u);
  Loader loader(*train, {.batch = 1, .epochs = 1});
  const auto* batch = loader.next();
  for (const auto* role : {"input", "target", "target_weight"}) {
    EXPECT_EQ(batch->at(role).item<float>(), 1) << role;
  }
  const auto refusal_of = [&](const config::TableData& table) {
    config.table = table;
    return test::error_text(Fault::config, [&] { open(config, Split::train); });
  };
  EXPECT_THAT(refusal_of({.input = {"a"}, .target = {"a"}}),
              HasSubstr("data.target: the array 'a' has another role, too"));
  EXPECT_THAT(refusal_of({.input = {"a"}, .target = {"b"}, .weight = "b"}),
              HasSubstr("data.weight: the array 'b' has another role, too"));
}

TEST_F(ArraysTest, WhatIsNoArrayOfNumbersIsRefusedByName) {
  put("y_train.npy", npy("<i8", "(1,)", std::string(8, '\0')));
  const auto image = npy("|u1", "(1, 8, 8, 3)", std::string(192, '\0'));
  EXPECT_THAT(refusal_of(image), HasSubstr("save x.transpose(0, 3, 1, 2)"));
  EXPECT_THAT(refusal_of("not one"), HasSubstr("x_train.npy' is not a file of numpy"));
  EXPECT_THAT(refusal_of(npy(">f4", "(1, 1)", "1234")), HasSubstr("the dtype '>f4'"));
  EXPECT_THAT(refusal_of(npy("|O", "(1, 1)", "1234")), HasSubstr("the dtype '|O'"));
  EXPECT_THAT(refusal_of(npy("<f4", "(1, 1)", "1234", "True")),
              HasSubstr("ascontiguousarray"));
  EXPECT_THAT(refusal_of(npy("<f4", "(1, 2)", "1234")),
              HasSubstr("truncated: its values take 8 bytes, 4 are there"));
  EXPECT_THAT(refusal_of(npy("<f4", "(-1, 1)", "1234")),
              HasSubstr("the shape (-1, 1)"));
  EXPECT_THAT(refusal_of(npy("<f4", "(99999999999, 99999999999)", "1234")),
              HasSubstr("the shape"));
  EXPECT_THAT(refusal_of(npy("<f4", "(1, 1)", "1234").substr(0, 40)),
              HasSubstr("truncated"));
  put("x_train.npy", npy("<f4", "()", "1234"));
  EXPECT_THAT(error(), HasSubstr("has 1 rows, but"));
  put("x_train.npy", npy("<f4", "(1, 1)", "1234"));
  put("version.npy", npy("<f4", "()", "1234"));
  EXPECT_THAT(error(), AllOf(HasSubstr("version.npy' has 0 rows, but"),
                             HasSubstr("x_train.npy' has 1;")));
}

TEST_F(ArraysTest, RowsAndClassesHaveToAgree) {
  put("x_train.npy", npy("|u1", "(2, 1, 1)", "ab"));
  put("y_train.npy", npy("|u1", "(3,)", "\1\1\1"));
  EXPECT_THAT(error(), AllOf(HasSubstr("y_train.npy' has 3 rows, but"),
                             HasSubstr("x_train.npy' has 2;")));
  put("y_train.npy", npy("|u1", "(2,)", "\1\1"));
  put("x_test.npy", npy("|u1", "(1, 1, 1)", "a"));
  put("y_test.npy", npy("|u1", "(1,)", "\2"));
  EXPECT_THAT(error(Split::eval), HasSubstr("y_test.npy' has the class 2"));
  put("train/y.npy", npy("|u1", "(2,)", "\1\1"));
  EXPECT_THAT(error(), HasSubstr("are both 'y' to train on"));
}

// Bytes are seen as 0 to 1, other numbers as they are.
TEST_F(ArraysTest, BothPartsHaveToBeOfOneKind) {
  put("x_train.npy", npy("<f4", "(1, 1)", "1234"));
  put("y_train.npy", npy("|u1", "(1,)", "\1"));
  put("x_test.npy", npy("|u1", "(1, 1)", "a"));
  put("y_test.npy", npy("<i8", "(1,)", std::string("\1\0\0\0\0\0\0\0", 8)));
  EXPECT_THAT(error(Split::eval),
              HasSubstr("x_test.npy' is of unsigned char, but 'x_train.npy' of float"));
  put("x_test.npy", npy("<f8", "(1, 1)", "12345678"));
  EXPECT_NO_THROW(open(config(), Split::eval));
  put("y_test.npy", npy("<f4", "(1,)", "1234"));
  EXPECT_THAT(error(Split::eval), HasSubstr("save both as one dtype"));
}

// The directory of a zip file, and its end, for records whose bytes all begin at 0.
std::string zip_of(const std::vector<std::string>& names, const std::string& body) {
  const auto number = [](std::size_t value, std::size_t width) {
    std::string bytes;
    for (; width > 0; --width, value >>= 8) bytes += static_cast<char>(value & 0xFF);
    return bytes;
  };
  const auto head = std::string("PK\x03\x04") + std::string(26, '\0') + body;
  std::string directory;
  for (const auto& name : names) {
    directory += "PK\x01\x02" + std::string(16, '\0') + number(body.size(), 4) +
                 number(body.size(), 4) + number(name.size(), 2) +
                 std::string(16, '\0') + name;
  }
  return head + directory + "PK\x05\x06" + std::string(6, '\0') +
         number(names.size(), 2) + number(directory.size(), 4) +
         number(head.size(), 4) + std::string(2, '\0');
}

TEST_F(ArraysTest, RecordsThatShareTheirBytesAreRefused) {
  const auto array = npy("<f4", "(1,)", "1234");
  put("train.npz", zip_of({"x.npy"}, array));
  EXPECT_THAT(test::error_text(Fault::config, [&] { open(config(), Split::train); }),
              HasSubstr("data.target: none of the arrays x"));
  put("train.npz", zip_of({"x.npy", "y.npy"}, array));
  EXPECT_THAT(error(), HasSubstr("the records in it overlap at byte 30"));
}

TEST_F(ArraysTest, AZipThatIsDamagedIsRefused) {
  put("train.npz", "PK\x03\x04 and no more");
  EXPECT_THAT(error(), HasSubstr("it is truncated, or no zip file"));
}

// The files of numpy: FOLDER/npz and so on.
class NumpyOracle : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_ORACLE();
    test::expect_oracle_agrees("data_files.py", {folder_.path().string()});
  }
  files::TemporaryDirectory folder_;
};

TEST_F(NumpyOracle, ArraysOfEveryKindOfFileAreTheSame) {
  const auto x = torch::arange(72, torch::kFloat32).view({12, 2, 3}) / 8;
  const auto y = torch::arange(12).remainder(5);
  for (const auto* kind : {"npz", "packed", "npy"}) {
    SCOPED_TRACE(kind);
    const config::DataConfig config{.name = "arrays", .dir = folder_.path() / kind};
    const auto train = open(config, Split::train), eval = open(config, Split::eval);
    EXPECT_EQ(train->spec().num_classes, 5);
    EXPECT_EQ(eval->spec().num_classes, 5);
    const auto rows =
        test::everything(*train, {.batch = 12, .shuffle = false, .epochs = 1});
    EXPECT_TRUE(rows.inputs.equal(x));
    EXPECT_TRUE(rows.targets.equal(y));
    const auto held =
        test::everything(*eval, {.batch = 4, .shuffle = false, .epochs = 1});
    EXPECT_TRUE(held.inputs.equal(x.narrow(0, 0, 4) + 100));
  }
}

TEST_F(NumpyOracle, EveryDtypeIsRead) {
  int read = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path() / "types")) {
    const auto tensor = detail::read_npy(entry.path().string());
    EXPECT_EQ(c10::getDtypeNames(tensor.scalar_type()).first,
              entry.path().stem().string());
    EXPECT_TRUE(tensor.to(torch::kInt64).equal(torch::tensor({0, 1, 0, 1})))
        << entry.path();
    ++read;
  }
  EXPECT_EQ(read, 11);
}

TEST_F(NumpyOracle, ADamagedCompressedArrayIsRefused) {
  const auto path = folder_.path() / "packed/data.npz";
  auto bytes = files::read(path, 1 << 20);
  bytes[150] = static_cast<char>(bytes[150] ^ 0x55);
  test::write_file(path, bytes);
  const config::DataConfig config{.name = "arrays", .dir = folder_.path() / "packed"};
  EXPECT_THAT(test::error_text(Fault::io, [&] { open(config, Split::train); }),
              HasSubstr("is damaged: it cannot be decompressed"));
}

TEST_F(NumpyOracle, CellsOfCsvWriterAreWhatTheyWere) {
  config::DataConfig config{.name = "csv", .dir = folder_.path() / "csv"};
  config.table.target = {"words"};
  const auto train = open(config, Split::train);
  auto names = train->spec().class_names;
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a, b", "blanks", "plain", "said \"no\"",
                                             "two\nlines", "ümlaut"}));
}

class TarOracle : public NumpyOracle {};

TEST_F(TarOracle, ShardsOfBothFormatsAreTheSameSamples) {
  for (const auto* kind : {"gnu", "pax"}) {
    SCOPED_TRACE(kind);
    config::DataConfig config{.name = "webdataset", .dir = folder_.path() / kind};
    const auto train = open(config, Split::train);
    ASSERT_EQ(train->size(), 10);
    EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{3, 4, 5}));
    EXPECT_EQ(train->spec().num_classes, 3);
    for (std::int64_t i = 0; i < 10; ++i) {
      EXPECT_TRUE(test::sample_of(*train, {.index = i}).eq(i).all().item<bool>()) << i;
      EXPECT_EQ(train->class_of(i), i % 3);
    }
    config.table.target = {"json.kind"};
    const auto named = open(config, Split::train);
    EXPECT_EQ(named->spec().class_names, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(named->class_of(3), 1);
  }
}

}  // namespace
}  // namespace lockstep::data
