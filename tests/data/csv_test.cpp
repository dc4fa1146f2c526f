// CSV files: what columns are found to be, what samples are made of them, and what is
// refused with file and line.
#include <cmath>

#include "lockstep/data/detail/csv_reader.h"
#include "lockstep/data/detail/table.h"
#include "lockstep/data/open.h"
#include "tests/data/image_files.h"
#include "tests/data/support.h"
#include "tests/support/byte_tokenizer.h"

namespace lockstep::data {
namespace {

using config::ColumnType;
using testing::ElementsAre;
using testing::HasSubstr;

class Csv : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) {
    test::write_file(folder_.path() / name, text);
    return (folder_.path() / name).string();
  }

  config::DataConfig config(config::TableData table = {}) const {
    config::DataConfig config{.name = "csv", .dir = folder_.path()};
    config.table = std::move(table);
    return config;
  }

  // All samples of a part in one batch.
  static Named batch_of(const Dataset& dataset) {
    Loader loader(dataset, {.batch = dataset.size(), .shuffle = false, .epochs = 1});
    const auto* batch = loader.next();
    Named copy;
    copy.set("input", batch->inputs.clone());
    copy.set("target", batch->targets.clone());
    for (const auto& field : dataset.spec().fields) {
      copy.set(field.name, batch->at(field.name).clone());
    }
    return copy;
  }

  std::string error(Fault fault, const config::DataConfig& config,
                    Split split = Split::train) const {
    return test::error_text(fault, [&] { open(config, split); });
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Csv, NumbersAreStandardizedByTheTrainingRows) {
  put("train.csv", "a,b,target\n1,10,no\n3,10,yes\n");
  put("val.csv", "target,b,a\nyes,12,5\n");
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(train->spec().num_classes, 2);
  EXPECT_THAT(train->spec().class_names, ElementsAre("no", "yes"));
  const auto rows = batch_of(*train);
  EXPECT_TRUE(rows.at("input").equal(torch::tensor({{-1.0F, 0.0F}, {1.0F, 0.0F}})));
  EXPECT_TRUE(rows.at("target").equal(torch::tensor({0, 1}, torch::kInt64)));
  const auto eval = batch_of(*open(config(), Split::eval));  // its columns are shuffled
  EXPECT_TRUE(eval.at("input").equal(torch::tensor({{3.0F, 2.0F}})));
  EXPECT_EQ(eval.at("target").item<int>(), 1);
  const auto raw = batch_of(*open(config({.standardize = false}), Split::train));
  EXPECT_TRUE(raw.at("input").equal(torch::tensor({{1.0F, 10.0F}, {3.0F, 10.0F}})));
}

// One-hot values of a few mistakes would be learnt in silence.
TEST_F(Csv, WordsAmongNumbersAreRefusedUnlessTheColumnIsAsked) {
  for (const auto* word : {"n/a", "NaN", "inf", "1e999", "12 kg"}) {
    put("train.csv", str("a,target\n1,no\n2,yes\n", word, ",no\n"));
    EXPECT_THAT(error(Fault::io, config()),
                HasSubstr(str("train.csv:4: 'a' is '", word, "', not a number")));
    const auto asked =
        open(config({.columns = {{"a", ColumnType::category}}}), Split::train);
    EXPECT_EQ(asked->spec().shape, (std::vector<std::int64_t>{3}));
  }
  put("train.csv", "a,target\n1,10.5\n2,nan\n");
  EXPECT_THAT(error(Fault::io, config()), HasSubstr("train.csv:3: 'target' is 'nan'"));
  put("train.csv", "a,target\nx1,no\nx2,yes\n3,no\n");  // names, of which one is 3
  EXPECT_EQ(open(config(), Split::train)->spec().shape, (std::vector<std::int64_t>{3}));
}

TEST_F(Csv, NamesThatEveryRowHasAnotherOfTakeNoSquareOfMemory) {
  std::string rows = "name,size,target\n";
  constexpr std::size_t kRows = 500;
  for (std::size_t i = 0; i < kRows; ++i) rows += str("user", i, ",", i % 7, ",yes\n");
  detail::CsvReader file(put("train.csv", rows));
  const auto form = detail::form_of(file, config());
  EXPECT_EQ(form.width, kRows + 1);
  EXPECT_EQ(detail::read_table(file, form, config()).numbers.size(), 2 * kRows);
}

TEST_F(Csv, CategoriesOfTheInputAreOneValueEach) {
  put("train.csv", "color,size,target\nred,1,0.5\nblue,1,1.5\nred,1,2.5\n");
  const auto train = open(config({.standardize = false}), Split::train);
  const auto rows = batch_of(*train);
  EXPECT_TRUE(rows.at("input").equal(
      torch::tensor({{0.0F, 1.0F, 1.0F}, {1.0F, 0.0F, 1.0F}, {0.0F, 1.0F, 1.0F}})))
      << rows.at("input");
  EXPECT_EQ(train->spec().target_dtype, torch::kFloat32);
  EXPECT_TRUE(rows.at("target").equal(torch::tensor({0.5F, 1.5F, 2.5F})));
  put("val.csv", "color,size,target\ngreen,1,0\n");
  EXPECT_THAT(error(Fault::io, config(), Split::eval),
              HasSubstr("val.csv:2: 'color' is 'green', which no training row has"));
}

TEST_F(Csv, WholeTargetsAreClassesAsTheyAre) {
  put("train.csv", "x,y\n1,0\n2,3\n");
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->spec().num_classes, 4);
  EXPECT_TRUE(
      batch_of(*train).at("target").equal(torch::tensor({0, 3}, torch::kInt64)));
  put("val.csv", "x,y\n1,4\n");
  EXPECT_THAT(error(Fault::io, config(), Split::eval),
              HasSubstr("val.csv:2: 'y' is 4"));
}

TEST_F(Csv, WholeTargetsThatMayBeNumbersAreAskedAbout) {
  put("train.csv", "x,price\n1,250000\n2,-3\n");
  const auto message = error(Fault::config, config({.target = {"price"}}));
  EXPECT_THAT(message, HasSubstr("{price: category} for classes"));
  const auto asked = [&](ColumnType type) {
    return open(config({.target = {"price"}, .columns = {{"price", type}}}),
                Split::train);
  };
  const auto numbers = asked(ColumnType::number);
  EXPECT_TRUE(batch_of(*numbers).at("target").equal(torch::tensor({250000.0F, -3.0F})));
  const auto classes = asked(ColumnType::category);
  EXPECT_THAT(classes->spec().class_names, ElementsAre("-3", "250000"));
  EXPECT_TRUE(
      batch_of(*classes).at("target").equal(torch::tensor({1, 0}, torch::kInt64)));
}

TEST_F(Csv, SeveralTargetsMayMissAndRowsHaveWeights) {
  put("train.csv", "x,edema,fracture,w\n1,1,,2\n2,-1,0,0.5\n");
  const auto train =
      open(config({.target = {"edema", "fracture"}, .weight = "w"}), Split::train);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(train->spec().target_shape, (std::vector<std::int64_t>{2}));
  const auto rows = batch_of(*train);
  EXPECT_TRUE(std::isnan(rows.at("target")[0][1].item<float>()));
  EXPECT_EQ(rows.at("target")[1][0].item<float>(), -1);
  EXPECT_TRUE(rows.at("target_weight").equal(torch::tensor({2.0F, 0.5F})));
}

TEST_F(Csv, ImagesLieBesideTheFileAndNumbersBesideAnImageAreAField) {
  std::filesystem::create_directory(folder_.path() / "scans");
  const auto pixels = test::picture(6, 8);
  put("scans/a.png", test::png_bytes(pixels));
  put("scans/b.png", test::png_bytes(test::picture(6, 8, 1)));
  put("train.csv", "scan,age,label\nscans/a.png,30,ill\nscans/b.png,50,well\n");
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->spec().shape, (std::vector<std::int64_t>{3, 6, 8}));
  const auto rows = batch_of(*train);
  EXPECT_TRUE(rows.at("input")[0].equal(pixels.permute({2, 0, 1})));
  EXPECT_TRUE(rows.at("columns").equal(torch::tensor({{-1.0F}, {1.0F}})));
  auto smaller = config();
  smaller.resize = 4;
  EXPECT_EQ(open(smaller, Split::train)->spec().shape,
            (std::vector<std::int64_t>{3, 4, 4}));
}

TEST_F(Csv, AnImageElsewhereIsRefused) {
  for (const std::string path : {"/etc/x.png", "../x.png", "a/../../x.png"}) {
    put("train.csv", "scan,label\n" + path + ",1\n");
    EXPECT_THAT(error(Fault::io, config()),
                HasSubstr("train.csv:2: 'scan' is '" + path + "'"));
  }
}

TEST_F(Csv, ATextIsTokensOfItsOwnLength) {
  put("train.csv", "review,stars,label\nab,1,bad\nabcdef,3,good\n");
  auto config = this->config();
  config.text.tokenizer = test::write_byte_tokenizer(folder_.path()).string();
  config.sequence = 4;
  const auto train = open(config, Split::train);
  EXPECT_TRUE(train->spec().is_tokens());
  EXPECT_EQ(train->length_of(0), 2);
  EXPECT_EQ(train->length_of(1), 4) << "data.sequence at most";
  Loader loader(*train, {.batch = 2, .shuffle = false, .epochs = 1});
  const auto* batch = loader.next();
  EXPECT_EQ(batch->at("input")[0][1].item<int>(), 'b');
  EXPECT_TRUE(batch->at("input_mask")[0].sum().equal(torch::tensor(2)));
  EXPECT_TRUE(batch->at("columns").equal(torch::tensor({{-1.0F}, {1.0F}})));
  config.text.tokenizer.clear();
  config.table.columns = {{"review", ColumnType::text}};
  EXPECT_THAT(error(Fault::config, config), HasSubstr("data.tokenizer: is empty"));
}

TEST_F(Csv, CellsAreReadAsTheStandardHasThem) {
  put("train.csv",
      "\xEF\xBB\xBFname,\"the, value\",target\r\n"
      "\"a \"\"b\"\"\nc\",1,x\r\n"
      "\r\n"
      "\" d,\",2,y");  // the last line is not ended
  const auto train = open(config(), Split::train);
  EXPECT_EQ(train->size(), 2);
  const auto rows = batch_of(*train);
  EXPECT_TRUE(
      rows.at("input").equal(torch::tensor({{1.0F, 0.0F, -1.0F}, {0.0F, 1.0F, 1.0F}})))
      << rows.at("input");
  put("train.csv", "a;b;target\n1;2;x\n3;4;y\n");
  EXPECT_EQ(open(config(), Split::train)->spec().shape[0], 2);
  std::filesystem::remove(folder_.path() / "train.csv");
  put("train.tsv", "a,b\ttarget\n1\tx\n3\ty\n");
  EXPECT_EQ(open(config(), Split::train)->spec().shape[0], 1);
}

TEST_F(Csv, BadCellsAreNamedWithFileAndLine) {
  const auto message = [&](const std::string& text) {
    put("train.csv", text);
    return error(Fault::io, config());
  };
  EXPECT_THAT(message("a,target\n1,x\n2\n"),
              HasSubstr("train.csv:3: 1 cells, but the header has 2 columns"));
  EXPECT_THAT(message("a,target\n1,x\n\"2,y\n3,y\n"),
              HasSubstr("train.csv:3: a quote is opened that nothing closes"));
  EXPECT_THAT(message("a,target\n1,x\n,y\n"), HasSubstr("train.csv:3: 'a' is empty"));
  EXPECT_THAT(message("a,a\n1,x\n"), HasSubstr("train.csv:1: there are two columns"));
  EXPECT_THAT(message("a,,target\n1,2,x\n"), HasSubstr("has no name"));
  EXPECT_THAT(message("a,target\n"), HasSubstr("train.csv has no rows"));
  EXPECT_THAT(message("\n\n"), HasSubstr("there is no header"));
  EXPECT_THAT(message(""), HasSubstr("is empty"));
  EXPECT_THAT(message("a,target\n1,x\n1e39,y\n"),
              HasSubstr("train.csv:3: 'a' is 1e39, beyond the range of a float32"));
  EXPECT_THAT(message("a,target\n-1e300,1.5\n1,2\n"),
              HasSubstr("train.csv:2: 'a' is -1e300, beyond"));
  EXPECT_THAT(message("\xFF\xFE"
                      "a\n"),
              HasSubstr("train.csv:1: the text is UTF-16"));
  EXPECT_THAT(message("a,target\r1,x\r2\r"), HasSubstr("train.csv:3: 1 cells"));
  EXPECT_THAT(message("a,target\r\n1,x\r\n\r\n2\r\n"), HasSubstr("train.csv:4: 1 "));
  put("train.csv", "a,target\n1,x\n2,y\n");
  put("val.csv", "a,target\ntall,x\n");
  EXPECT_THAT(error(Fault::io, config(), Split::eval),
              HasSubstr("val.csv:2: 'a' is 'tall', not a number"));
  put("val.csv", "b,target\n1,x\n");
  EXPECT_THAT(error(Fault::io, config(), Split::eval),
              HasSubstr("val.csv has no column 'a'"));
}

TEST_F(Csv, KnobsThatNameNoColumnGetASuggestion) {
  put("train.csv", "age,weight,outcome\n1,2,0\n2,2,1\n");
  const auto message = [&](config::TableData table) {
    return error(Fault::config, config(std::move(table)));
  };
  EXPECT_THAT(message({}), HasSubstr("data.target: none of the columns"));
  EXPECT_THAT(message({.target = {"outcomes"}}), HasSubstr("did you mean 'outcome'?"));
  EXPECT_THAT(message({.input = {"agee"}, .target = {"outcome"}}),
              HasSubstr("data.input: "));
  EXPECT_THAT(message({.input = {"age", "outcome"}, .target = {"outcome"}}),
              HasSubstr("'outcome' is the target"));
  EXPECT_THAT(message({.input = {"age", "age"}, .target = {"outcome"}}),
              HasSubstr("data.input: 'age' is named twice"));
  EXPECT_THAT(message({.target = {"outcome"}, .weight = "outcome"}),
              HasSubstr("data.weight: 'outcome' is the target"));
  EXPECT_THAT(message({.target = {"outcome"}, .weight = "w"}),
              HasSubstr("data.weight: "));
  EXPECT_THAT(message({.target = {"outcome"}, .columns = {{"x", ColumnType::text}}}),
              HasSubstr("data.columns: "));
}

TEST_F(Csv, TheFileOfAPartIsFoundByItsName) {
  EXPECT_THAT(error(Fault::io, config()), HasSubstr("has no .csv file to train on"));
  put("people.csv", "x,y\n1,0\n2,1\n");
  EXPECT_EQ(open(config(), Split::train)->size(), 2);
  EXPECT_THAT(error(Fault::io, config(), Split::eval), HasSubstr("data.split=0.1"));
  put("more.csv", "x,y\n1,0\n2,1\n");
  EXPECT_THAT(error(Fault::io, config()), HasSubstr("more.csv and"));
  auto one = config();
  one.dir = (folder_.path() / "people.csv").string();
  EXPECT_EQ(open(one, Split::train)->size(), 2);
}

}  // namespace
}  // namespace lockstep::data
