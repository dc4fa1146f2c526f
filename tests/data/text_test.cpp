// Texts of users: windows over plain ones, examples of .jsonl files.
#include "lockstep/data/examples.h"
#include "lockstep/data/open.h"
#include "tests/data/support.h"
#include "tests/support/byte_tokenizer.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using TokenList = std::vector<std::int64_t>;

constexpr std::int64_t kEnd = 256;
constexpr std::int64_t kNone = -100;

class TextFiles : public ::testing::Test {
 protected:
  TextFiles() {
    config_.name = "text";
    config_.dir = (folder_.path() / "texts").string();
    config_.sequence = 4;
    config_.text.tokenizer = test::write_byte_tokenizer(folder_.path()).string();
    std::filesystem::create_directories(config_.dir);
  }
  void write(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(config_.dir) / name;
    std::filesystem::create_directories(path.parent_path());
    test::write_file(path, text);
  }
  std::unique_ptr<Dataset> opened(Split split = Split::train) {
    return open(config_, split);
  }
  std::string problem(Split split = Split::train) {
    try {
      open(config_, split);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  files::TemporaryDirectory folder_;
  config::DataConfig config_;
};

struct TokenRow {
  TokenList input, target, bytes, segment, position;
};

TokenRow row_of(const Dataset& data, std::int64_t index) {
  const auto length = static_cast<std::size_t>(data.spec().shape[0]);
  TokenRow row;
  std::vector<TokenList> fields(data.spec().fields.size(), TokenList(length));
  row.input.resize(length);
  row.target.resize(length);
  std::vector<std::span<std::byte>> rooms;
  for (auto& field : fields) {
    rooms.push_back(std::as_writable_bytes(std::span(field)));
  }
  TokenList lengths(2 + fields.size(), static_cast<std::int64_t>(length));
  data.read_sample({.index = index},
                   {std::as_writable_bytes(std::span(row.input)), row.target, rooms,
                    std::as_writable_bytes(std::span(row.target)), lengths});
  row.bytes = fields[0];
  if (fields.size() == 3) {
    row.segment = fields[1];
    row.position = fields[2];
  }
  if (data.spec().varies) {
    for (auto* part : {&row.input, &row.target, &row.bytes}) {
      part->resize(static_cast<std::size_t>(lengths[0]));
    }
  }
  return row;
}

TEST_F(TextFiles, PlainTextsAreWindowsWithTheEndOfTextBetweenThem) {
  write("b.txt", "efg");
  write("a.txt", "abcd");
  write("a_val.txt", "wxyz");
  const auto data = opened();
  EXPECT_EQ(data->spec().num_classes, 257);
  ASSERT_EQ(data->size(), 2);  // nine tokens: the last is a target only
  EXPECT_THAT(row_of(*data, 0).input, ElementsAre(kEnd, 'a', 'b', 'c'));
  EXPECT_THAT(row_of(*data, 0).target, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(row_of(*data, 1).input, ElementsAre('d', kEnd, 'e', 'f'));
  EXPECT_THAT(row_of(*data, 1).target, ElementsAre(kEnd, 'e', 'f', 'g'));
  EXPECT_THAT(row_of(*data, 1).bytes, ElementsAre(0, 1, 1, 1))
      << "the end of a text has no bytes";
  EXPECT_THAT(row_of(*opened(Split::eval), 0).target, ElementsAre('w', 'x', 'y', 'z'));
}

TEST_F(TextFiles, ACompletionIsLearntAndItsPromptIsNot) {
  config_.text.pack = false;
  config_.sequence = 8;
  write("train.jsonl",
        "\xEF\xBB\xBF{\"prompt\": \"ab\", \"completion\": \"cd\"}\n\n"
        "{\"text\": \"xy\"}\n");
  const auto data = opened();
  ASSERT_EQ(data->size(), 2);
  const auto first = row_of(*data, 0);
  EXPECT_THAT(first.input, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(first.target, ElementsAre(kNone, 'c', 'd', kEnd));
  EXPECT_THAT(first.bytes, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(row_of(*data, 1).target, ElementsAre('y', kEnd));
  config_.text.loss_on = config::LossOn::all;
  EXPECT_THAT(row_of(*opened(), 0).target, ElementsAre('b', 'c', 'd', kEnd));
}

TEST_F(TextFiles, PackedExamplesShareRowsInSegmentsOfTheirOwn) {
  config_.sequence = 6;
  write("train.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"cde\"}\n{\"text\": \"f\"}\n");
  const auto data = opened();
  ASSERT_EQ(data->size(), 1);
  const auto row = row_of(*data, 0);
  EXPECT_THAT(row.input, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(row.target, ElementsAre('b', kEnd, 'd', 'e', kEnd, kEnd));
  EXPECT_THAT(row.bytes, ElementsAre(1, 0, 1, 1, 0, 0));
  EXPECT_THAT(row.segment, ElementsAre(1, 1, 2, 2, 2, 3));
  EXPECT_THAT(row.position, ElementsAre(0, 1, 0, 1, 2, 0));
}

TEST_F(TextFiles, LongExamplesAreCut) {
  config_.text.pack = false;
  write("train.jsonl", "{\"text\": \"abcdefgh\"}\n");
  EXPECT_THAT(row_of(*opened(), 0).target, ElementsAre('b', 'c', 'd', 'e'));
}

TEST_F(TextFiles, OnlyWholeWordsMakeAFileOneToEvaluateOn) {
  write("new_testament.txt", "abcdefgh");
  write("latest/interval.txt", "ijklmnop");
  write("val/a.txt", "qrstuvwx");
  const auto elsewhere = folder_.path() / "elsewhere.txt";
  test::write_file(elsewhere, "yzyzyzyz");
  std::filesystem::create_symlink(elsewhere,
                                  std::filesystem::path(config_.dir) / "my-test.txt");
  std::filesystem::create_directory(std::filesystem::path(config_.dir) / "folder.txt");
  EXPECT_EQ(opened()->size(), 4) << "18 tokens in windows of 4";
  EXPECT_EQ(opened(Split::eval)->size(), 4);
}

TEST_F(TextFiles, ExamplesWithNothingToLearnAreRefused) {
  write("train.jsonl", "{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n");
  EXPECT_THAT(problem(), HasSubstr("before anything that is learnt"));
}

TEST_F(TextFiles, WhatIsWrongIsSaidWithFileAndLine) {
  EXPECT_THAT(problem(), HasSubstr("has no .txt or .jsonl file to train on"));
  write("a.txt", "abcdefgh");
  EXPECT_THAT(problem(Split::eval), HasSubstr("hold samples back with data.split"));
  write("b.jsonl", "{\"text\": \"a\"}");
  EXPECT_THAT(problem(), HasSubstr("do not mix"));
  std::filesystem::remove(std::filesystem::path(config_.dir) / "a.txt");
  write("b.jsonl", "{\"text\": \"a\"}\n{\"text\": ");
  EXPECT_THAT(problem(), AllOf(HasSubstr("b.jsonl' line 2: it is not JSON")));
  write("b.jsonl", "{\"text\": \"\"}\n");
  EXPECT_THAT(problem(), HasSubstr("line 1: the text is empty"));
  write("b.jsonl", "{\"text\": \"a <|endoftext|> b\"}\n");
  EXPECT_THAT(problem(), AllOf(HasSubstr("line 1: "), HasSubstr("<|endoftext|>")));
  write("b.jsonl", "");
  EXPECT_THAT(problem(), HasSubstr("b.jsonl' is empty"));
  std::filesystem::remove(std::filesystem::path(config_.dir) / "b.jsonl");
  write("a.txt", "abc");
  EXPECT_THAT(problem(), HasSubstr("have 4 tokens, a sample needs data.sequence + 1"));
  write("a.txt", "");
  EXPECT_THAT(problem(), HasSubstr("a.txt' is empty"));
  write("a.txt", "abc <|endoftext|> def");
  EXPECT_THAT(problem(), AllOf(HasSubstr("a.txt': "), HasSubstr("<|endoftext|>")));
}

std::string problem_in(const std::string& line) {
  try {
    parse_example(line, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Examples, OfAChatTheAssistantIsLearnt) {
  const config::TextData text{.chat_template = "<{role}> {content}</{role}>"};
  const auto example = parse_example(
      R"({"messages": [{"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Yes."}]})",
      text);
  EXPECT_THAT(
      example,
      ElementsAre(Stretch{"<user>", false}, Stretch{" Hi</user>", false},
                  Stretch{"<assistant>", false}, Stretch{" Yes.</assistant>", true}));
  EXPECT_EQ(message_prefix(text, "user"), "<user> ");
  EXPECT_EQ(message_suffix(text, "user"), "</user>");
}

TEST(Examples, OfOtherShapesAreRefused) {
  EXPECT_THAT(problem_in("3"), HasSubstr("it is number, not an object"));
  EXPECT_THAT(problem_in(R"({"txt": "a"})"), HasSubstr("it has none of \"text\""));
  EXPECT_THAT(problem_in(R"({"text": 3})"), HasSubstr("\"text\" is number"));
  EXPECT_THAT(problem_in(R"({"prompt": "a"})"),
              HasSubstr("there is no \"completion\""));
  EXPECT_THAT(problem_in(R"({"messages": []})"), HasSubstr("not a list"));
  EXPECT_THAT(problem_in(R"({"messages": [{"role": "asistant", "content": "a"}]})"),
              AllOf(HasSubstr("there is no role 'asistant'"), HasSubstr("assistant")));
  EXPECT_THAT(problem_in(R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("nothing to learn"));
  const config::TextData text{.chat_template = "{role}"};
  EXPECT_THROW(message_prefix(text, "user"), Error);
}

}  // namespace
}  // namespace lockstep::data
