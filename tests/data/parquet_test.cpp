// Parquet files as pyarrow writes them: every type, several files and row groups,
// lists, and what is refused with file, column and row.
#include "lockstep/data/open.h"
#include "tests/data/support.h"
#include "tests/support/oracle.h"

namespace lockstep::data {
namespace {

using config::ColumnType;
using testing::ElementsAre;
using testing::HasSubstr;

class Parquet : public testing::Test {
 protected:
  config::DataConfig config(const std::string& folder,
                            config::TableData table = {}) const {
    config::DataConfig config{.name = "parquet", .dir = (folder_.path() / folder)};
    config.table = std::move(table);
    return config;
  }

  static test::Everything rows_of(const config::DataConfig& config, Split split) {
    const auto part = open(config, split);
    return test::everything(*part,
                            {.batch = part->size(), .shuffle = false, .epochs = 1});
  }

  static std::string error(Fault fault, const config::DataConfig& config) {
    return test::error_text(fault, [&] { open(config, Split::train); });
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Parquet, WhatIsNoParquetFileIsRefusedByName) {
  EXPECT_THAT(error(Fault::io, config("")),
              HasSubstr("has no .parquet file to train on"));
  test::write_file(folder_.path() / "train.parquet", "no Parquet at all, just words");
  EXPECT_THAT(error(Fault::io, config("")), HasSubstr("train.parquet: Parquet magic"));
  test::write_file(folder_.path() / "train.parquet", "");
  EXPECT_THAT(error(Fault::io, config("")), HasSubstr("train.parquet: "));
}

// The files of pyarrow: FOLDER/types and so on.
class ParquetOracle : public Parquet {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_ORACLE();
    test::expect_oracle_agrees("parquet_files.py", {folder_.path().string()});
  }

  std::string refusal(const std::string& name, config::TableData table = {}) const {
    return error(Fault::io, config("bad/" + name, std::move(table)));
  }
};

TEST_F(ParquetOracle, EveryTypeIsRead) {
  int read = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path() / "types")) {
    SCOPED_TRACE(entry.path());
    const auto name = "types/" + entry.path().filename().string();
    const auto rows = rows_of(config(name, {.standardize = false}), Split::train);
    EXPECT_TRUE(rows.inputs.equal(torch::tensor({{0.0F}, {1.0F}, {0.0F}, {1.0F}})))
        << rows.inputs;
    EXPECT_TRUE(rows.targets.equal(torch::arange(4)));
    ++read;
  }
  EXPECT_EQ(read, 14);
}

TEST_F(ParquetOracle, SeveralFilesAndRowGroupsAreOneTable) {
  const auto several = config("many", {.input = {"word", "x"}, .standardize = false});
  const auto train = open(several, Split::train);
  EXPECT_THAT(train->spec().class_names, ElementsAre("no", "yes"));
  const auto rows = rows_of(several, Split::train);
  const auto index = torch::arange(17);
  EXPECT_TRUE(rows.inputs.select(1, 2).equal(index.to(torch::kFloat32) / 8));
  EXPECT_TRUE(rows.inputs.select(1, 0).equal(index.remainder(2).to(torch::kFloat32)))
      << "high comes before low";
  EXPECT_TRUE(rows.targets.equal(index.div(2, "floor").remainder(2).to(torch::kInt64)));
  EXPECT_EQ(open(several, Split::eval)->size(), 4);
}

TEST_F(ParquetOracle, ListsAreAsManyColumnsAndNullsAreMissing) {
  const auto lists = config("lists", {.input = {"free", "fixed"},
                                      .target = {"labels"},
                                      .weight = "weight",
                                      .standardize = false});
  const auto rows = rows_of(lists, Split::train);
  EXPECT_TRUE(rows.inputs.equal(torch::tensor({{0.5F, 1.0F, 1.0F, 2.0F, 3.0F},
                                               {1.5F, 2.0F, 4.0F, 5.0F, 6.0F},
                                               {2.5F, 3.0F, 7.0F, 8.0F, 9.0F}})))
      << rows.inputs;
  EXPECT_TRUE(rows.targets.nan_to_num(-7).equal(
      torch::tensor({{1.0F, -7.0F}, {0.0F, 1.0F}, {-7.0F, -7.0F}})))
      << rows.targets;
  EXPECT_EQ(open(lists, Split::train)->spec().fields[0].name, "target_weight");
  const auto asked = config("lists", {.input = {"free"},
                                      .target = {"labels"},
                                      .columns = {{"free", ColumnType::category}}});
  EXPECT_THAT(error(Fault::config, asked), HasSubstr("'free' of "));
  const auto weight =
      config("lists", {.input = {"free"}, .target = {"labels"}, .weight = "fixed"});
  EXPECT_THAT(error(Fault::io, weight), HasSubstr("a single value in a row is wanted"));
}

TEST_F(ParquetOracle, TheLengthOfListsIsThatOfTheFirstFileThatHasOne) {
  const auto rows = rows_of(config("late", {.standardize = false}), Split::train);
  EXPECT_TRUE(rows.inputs.equal(torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}})))
      << rows.inputs;
}

TEST_F(ParquetOracle, WholeNumbersThatAreNamesKeepTheirDigits) {
  const auto ids = config(
      "lists",
      {.input = {"free"}, .target = {"id"}, .columns = {{"id", ColumnType::category}}});
  EXPECT_THAT(open(ids, Split::train)->spec().class_names,
              ElementsAre("9007199254740992", "9007199254740993"))
      << "a double has no room for both";
}

TEST_F(ParquetOracle, BadCellsAreNamedWithFileColumnAndRow) {
  EXPECT_THAT(refusal("null"), HasSubstr("train.parquet, row 1: 'x' is empty"));
  EXPECT_THAT(refusal("nan"), HasSubstr("train.parquet, row 5000: 'x' is empty"));
  EXPECT_THAT(refusal("uneven"),
              HasSubstr("'x', row 5000: a list has 1 values, not 2 as the first one"));
  EXPECT_THAT(refusal("huge"), HasSubstr("row 2: 18446744073709551615 is more than"));
  EXPECT_THAT(refusal("no_rows"), HasSubstr("has no rows"));
  EXPECT_THAT(refusal("infinite"), HasSubstr("row 2: 'x' is 'inf', not a number"));
  EXPECT_THAT(refusal("mixed"),
              HasSubstr("train-1.parquet: 'x' is of type string, but a number in"));
}

TEST_F(ParquetOracle, ColumnsThatCanNotBeReadAreRefusedWhereTheyAreAskedFor) {
  for (const auto* name : {"time", "words", "bytes"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(refusal(name), HasSubstr("train.parquet: 'x' is of type"));
  }
  EXPECT_THAT(refusal("time"), HasSubstr("timestamp[us]"));
  EXPECT_THAT(refusal("empty"), HasSubstr("'x': its lists are empty"));
  EXPECT_THAT(refusal("nothing"), HasSubstr("'x': it has no list"));
  EXPECT_THAT(refusal("columns"), HasSubstr("train-1.parquet has no column 'x'"));
  EXPECT_THAT(error(Fault::config, config("bad/null", {.input = {"xx"}})),
              HasSubstr("did you mean 'x'?"));
}

TEST_F(ParquetOracle, ATruncatedOrDamagedFileIsRefused) {
  const auto many = config("many", {.input = {"word", "x"}});
  const auto path = folder_.path() / "many/train/part-1.parquet";
  auto bytes = files::read(path, 1 << 20);
  test::write_file(path, bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error(Fault::io, many), HasSubstr("part-1.parquet: "));
  for (std::size_t at = 4; at < bytes.size(); at += 7) {
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    test::write_file(path, damaged);
    try {
      open(many, Split::train);
    } catch (const Error& refused) {
      EXPECT_EQ(refused.fault(), Fault::io) << refused.what();
    }
  }
}

TEST_F(ParquetOracle, IsTheSameTableAsCsv) {
  auto csv = config("table/csv");
  csv.name = "csv";
  const auto parquet = config("table/parquet");
  for (const auto split : {Split::train, Split::eval}) {
    const auto a = rows_of(csv, split), b = rows_of(parquet, split);
    EXPECT_TRUE(a.inputs.equal(b.inputs));
    EXPECT_TRUE(a.targets.equal(b.targets));
  }
  EXPECT_EQ(open(csv, Split::train)->spec().class_names,
            open(parquet, Split::train)->spec().class_names);
}

}  // namespace
}  // namespace lockstep::data
