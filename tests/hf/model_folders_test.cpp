#include "lockstep/hf/model_folders.h"

#include "tests/hf/support/gpt2_folder.h"

namespace lockstep::hf {
namespace {

using test::Gpt2Folder;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(ModelFolders, AreAddedAsCopiesOrLinksAndListed) {
  Gpt2Folder folder;
  folder.write_shards();
  test::write_file(folder.path("merges.txt"), "#version: 0.2\n");
  test::write_file(folder.path("README.md"), "not needed");
  const files::TemporaryDirectory models;
  EXPECT_THAT(list_models(models.path() / "none"), IsEmpty());
  const auto added = add_model(models.path(), {"tiny", folder.path(), Adding::copy});
  EXPECT_THAT(added.files, AllOf(Contains("merges.txt"), Contains("config.json"),
                                 Contains("model.safetensors.index.json"),
                                 Contains("model-00002-of-00002.safetensors"),
                                 Not(Contains("README.md"))));
  add_model(models.path(), {"linked", folder.path(), Adding::link});
  const auto all = list_models(models.path());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "linked");
  EXPECT_TRUE(std::filesystem::is_symlink(all[0].path));
  EXPECT_EQ(all[1].model->layers, 2);
  EXPECT_EQ(num_parameters(*all[1].model), 1896);
}

TEST(ModelFolders, HalfAModelIsNeverAddedAndANameIsTakenOnce) {
  Gpt2Folder folder;
  const files::TemporaryDirectory models;
  add_model(models.path(), {"tiny", folder.path(), Adding::copy});
  const auto refused = [&](const std::string& name, const Path& from) {
    const auto error = test::error_of([&] {
      add_model(models.path(), {name, from, Adding::copy});
    });
    return error ? std::string(error->what()) : "";
  };
  EXPECT_THAT(refused("tiny", folder.path()), HasSubstr("already"));
  EXPECT_THAT(refused("../x", folder.path()), HasSubstr("not a plain name"));
  EXPECT_THAT(refused("x", folder.path("config.json")), HasSubstr("is not a folder"));
  folder.tensors().pop_back();
  folder.write();
  EXPECT_THAT(refused("half", folder.path()), HasSubstr("is missing"));
  EXPECT_THAT(test::names_in(models.path()), testing::ElementsAre("tiny"));
}

TEST(ModelFolders, AFolderThatIsNoModelIsShownWithTheReason) {
  const files::TemporaryDirectory models;
  std::filesystem::create_directories(models.path() / "empty");
  const auto all = list_models(models.path());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].model);
  EXPECT_THAT(all[0].problem, HasSubstr("no config.json"));
}

}  // namespace
}  // namespace lockstep::hf
