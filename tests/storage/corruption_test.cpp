// Whatever a disk does to a checkpoint is found, named, and answered by taking the one
// before.
#include <fcntl.h>
#include <unistd.h>

#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

using storage::Depth;
using storage::FileSystem;

class Corruption : public testing::Test {
 protected:
  Corruption() {
    save_small(FileSystem::real(), folder_.path(), {.step = 1, .seed = 1});
    save_small(FileSystem::real(), folder_.path(), {.step = 2, .seed = 2});
  }

  void expect_fallback(const std::string& file, const std::string& what) {
    const auto found = storage::newest_valid(folder_.path(), Depth::full);
    ASSERT_EQ(found.path, folder_.path() / "step_1") << file << ": " << what;
    ASSERT_EQ(found.skipped.size(), 1u);
    ASSERT_THAT(found.skipped[0].reason,
                testing::HasSubstr((folder_.path() / "step_2" / file).string()))
        << what;
  }

  Path path(const std::string& file) const { return folder_.path() / "step_2" / file; }

  MemoryDirectory folder_;
  const std::vector<std::string> names_ = {"manifest.json", "rank_0.safetensors",
                                           "rank_1.safetensors"};
};

TEST_F(Corruption, EveryFlippedBitIsFoundAndNamed) {
  std::size_t flips = 0;
  const auto place = folder_.path() / "step_2";
  for (const auto& name : names_) {
    const auto content = read_file(path(name));
    const files::Descriptor file(::open(path(name).c_str(), O_RDWR | O_CLOEXEC));
    for (std::size_t at = 0; at < content.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit, ++flips) {
        const char byte = static_cast<char>(content[at] ^ 1 << bit);
        ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(at)), 1);
        const auto what = str("bit ", bit, " of byte ", at);
        const auto error = error_of([&] { storage::verify(place, Depth::full); });
        ASSERT_TRUE(error.has_value()) << name << ": " << what;
        ASSERT_THAT(error->what(), testing::HasSubstr(path(name).string())) << what;
        if (flips % 97 == 0) expect_fallback(name, what);
        if (HasFatalFailure()) return;
      }
      ASSERT_EQ(::pwrite(file.get(), &content[at], 1, static_cast<off_t>(at)), 1);
    }
  }
  EXPECT_GT(flips, 20'000u);
  EXPECT_EQ(storage::newest_valid(folder_.path(), Depth::full).path,
            folder_.path() / "step_2");
}

TEST_F(Corruption, EveryTruncationIsFoundAtAGlance) {
  for (const auto& name : names_) {
    const auto content = read_file(path(name));
    for (auto size = content.size(); size-- > 0;) {
      std::filesystem::resize_file(path(name), size);
      const auto found = storage::newest_valid(folder_.path(), Depth::quick);
      ASSERT_EQ(found.path, folder_.path() / "step_1") << name << " cut to " << size;
      ASSERT_THAT(found.skipped.at(0).reason, testing::HasSubstr(path(name).string()));
    }
    write_file(path(name), content);
  }
}

TEST_F(Corruption, AMissingFileOrManifestIsNamed) {
  for (const auto& name : names_) {
    const auto content = read_file(path(name));
    std::filesystem::remove(path(name));
    const auto found = storage::newest_valid(folder_.path(), Depth::quick);
    EXPECT_EQ(found.path, folder_.path() / "step_1");
    EXPECT_THAT(found.skipped.at(0).reason, testing::HasSubstr(name));
    write_file(path(name), content);
  }
}

TEST_F(Corruption, AFlippedBitOfATensorIsFoundByWhoeverReadsIt) {
  const auto name = names_[1];
  const auto content = read_file(path(name));
  const auto manifest = storage::verify(path(name).parent_path(), Depth::full);
  for (const auto& tensor : manifest.tensors) {
    for (const auto& piece : tensor.pieces) {
      if (manifest.files[piece.file].name != name || piece.count == 0) continue;
      auto changed = content;
      changed[static_cast<std::size_t>(piece.offset)] ^= 4;
      write_file(path(name), changed);
      const storage::Reader reader(path(name).parent_path());
      std::string bytes(static_cast<std::size_t>(tensor.num_bytes()), '\0');
      const auto out = std::as_writable_bytes(std::span(bytes));
      const auto text = error_text(Fault::io, [&] { reader.read(tensor.name, out); });
      EXPECT_THAT(text, testing::HasSubstr(tensor.name));
      EXPECT_THAT(text, testing::HasSubstr(path(name).string()));
      // The second reader of a bad block hears the same.
      EXPECT_EQ(error_text(Fault::io, [&] { reader.read(tensor.name, out); }), text);
    }
  }
}

TEST_F(Corruption, ACopyUnderAnotherStepIsSkipped) {
  std::filesystem::copy(folder_.path() / "step_1", folder_.path() / "step_9");
  const auto found = storage::newest_valid(folder_.path(), Depth::quick);
  EXPECT_EQ(found.path, folder_.path() / "step_2");
  EXPECT_THAT(found.skipped.at(0).reason, testing::HasSubstr("holds step 1"));
}

}  // namespace
}  // namespace lockstep::test
