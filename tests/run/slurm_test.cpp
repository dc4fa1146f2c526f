#include "lockstep/run/slurm.h"

#include <random>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::slurm::expand_nodes;
using run::slurm::expand_tasks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string nodes_refusal(const std::string& list) {
  return test::error_text(Fault::config, [&] { expand_nodes(list); });
}

std::string tasks_refusal(const std::string& list) {
  return test::error_text(Fault::config, [&] { expand_tasks(list); });
}

TEST(SlurmNodes, RangesAndNamesAreExpandedInOrder) {
  EXPECT_THAT(
      expand_nodes("gnode[10,20,25-27],login1"),
      ElementsAre("gnode10", "gnode20", "gnode25", "gnode26", "gnode27", "login1"));
  EXPECT_THAT(expand_nodes("one"), ElementsAre("one"));
  EXPECT_THAT(expand_nodes("a,b-1,c.d"), ElementsAre("a", "b-1", "c.d"));
  EXPECT_THAT(expand_nodes(""), IsEmpty());
}

TEST(SlurmNodes, LeadingZerosAreKept) {
  EXPECT_THAT(expand_nodes("n[001-003]"), ElementsAre("n001", "n002", "n003"));
  EXPECT_THAT(expand_nodes("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand_nodes("n[9-11]"), ElementsAre("n9", "n10", "n11"));
}

TEST(SlurmNodes, TextAfterABracketAndSeveralBracketsWork) {
  EXPECT_THAT(expand_nodes("n[1-2]-ib"), ElementsAre("n1-ib", "n2-ib"));
  EXPECT_THAT(expand_nodes("r[0-1]n[1-2],x"),
              ElementsAre("r0n1", "r0n2", "r1n1", "r1n2", "x"));
}

TEST(SlurmNodes, MalformedListsAreRefused) {
  for (const std::string list :
       {"n[1-2", "n]1[", "n[]", "n[1-]", "n[-2]", "n[a-b]", "n[3-1]", "n[[1]]", ",",
        "a,,b", "a,", "n[1,]", "n[1]]", "n[9999999999]"}) {
    EXPECT_THAT(nodes_refusal(list), HasSubstr("the list of nodes")) << list;
  }
}

TEST(SlurmNodes, AListBeyondAnyClusterCostsNoMemory) {
  EXPECT_THAT(nodes_refusal("n[1-999999999]"), HasSubstr("more than 65536 nodes"));
  EXPECT_THAT(nodes_refusal("n[0-9999][0-9999][0-9999]"), HasSubstr("65536"));
  std::string many;
  for (int i = 0; i < 100; ++i) many += "n[0-999],";
  EXPECT_THAT(nodes_refusal(many + "x"), HasSubstr("65536"));
  EXPECT_THAT(nodes_refusal(std::string(2 << 20, 'a')), HasSubstr("1 MiB"));
  EXPECT_THAT(nodes_refusal(std::string(1000, 'a')), HasSubstr("255"));
  EXPECT_THAT(nodes_refusal(std::string(100'000, 'a') + "[0-60000]"), HasSubstr("255"));
  EXPECT_EQ(expand_nodes("n[1-65536]").size(), 65536U);
}

TEST(SlurmTasks, RepeatsAreExpanded) {
  EXPECT_THAT(expand_tasks("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(expand_tasks("8"), ElementsAre(8));
  EXPECT_THAT(expand_tasks("1,2(x1),3"), ElementsAre(1, 2, 3));
}

TEST(SlurmTasks, MalformedListsAreRefused) {
  for (const std::string list : {"", "x", "4(x", "4(x2", "4(2)", "(x2)", "4(x)", "4,",
                                 "4(x2)3", "-1", "4(x-1)", "4(x0)"}) {
    EXPECT_THAT(tasks_refusal(list), HasSubstr("the tasks per node")) << list;
  }
  EXPECT_THAT(tasks_refusal("4(x999999999)"), HasSubstr("65536"));
  EXPECT_THAT(tasks_refusal("999999999"), HasSubstr("form"));
}

// Any bytes: a list of names, or a config error; never a crash or a list without end.
TEST(SlurmLists, MutationsAreParsedOrRefused) {
  const std::vector<std::string> seeds = {"gnode[10,20,25-27],login1", "n[001-003]",
                                          "r[0-1]n[0-3]-ib,x", "4(x2),3", "16(x64)"};
  const std::string letters = "[](),-x0189n\xff";
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    auto list = seeds[random() % seeds.size()];
    for (auto edits = random() % 6; edits > 0; --edits) {
      const auto at = random() % (list.size() + 1);
      const char letter = letters[random() % letters.size()];
      if (random() % 3 == 0 && at < list.size()) {
        list.erase(at, 1);
      } else if (random() % 2 == 0 && at < list.size()) {
        list[at] = letter;
      } else {
        list.insert(at, 1, letter);
      }
    }
    const auto nodes = test::error_of([&] {
      for (const auto& name : expand_nodes(list)) EXPECT_FALSE(name.empty()) << list;
    });
    if (nodes) {
      EXPECT_EQ(nodes->fault(), Fault::config) << list;
    }
    const auto tasks =
        test::error_of([&] { EXPECT_FALSE(expand_tasks(list).empty()); });
    if (tasks) {
      EXPECT_EQ(tasks->fault(), Fault::config) << list;
    }
  }
}

}  // namespace
}  // namespace lockstep
