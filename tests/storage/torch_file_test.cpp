#include "lockstep/storage/torch_file.h"

#include "lockstep/storage/safetensors.h"
#include "tests/storage/support/small_checkpoint.h"
#include "tests/support/oracle.h"

namespace lockstep::test {
namespace {

std::string bytes_of(const storage::TorchFile& file,
                     const storage::TorchTensor& tensor) {
  const auto count = *storage::num_elements(tensor.shape);
  const auto width = *storage::num_bytes(tensor.dtype, 1);
  std::string bytes(static_cast<std::size_t>(count * width), '\0');
  // In two parts: a reader with little memory takes them so.
  const auto half = count / 2;
  const auto out = std::as_writable_bytes(std::span(bytes));
  const auto cut = static_cast<std::size_t>(half * width);
  file.read(tensor, 0, out.first(cut));
  file.read(tensor, half, out.subspan(cut));
  return bytes;
}

void expect_same(const Path& pt, const Path& safetensors) {
  const storage::TorchFile file(pt);
  const auto header = storage::read_safetensors_header(safetensors);
  const auto content = read_file(safetensors);
  EXPECT_EQ(file.tensors().size(), header.entries.size()) << pt;
  for (const auto& tensor : file.tensors()) {
    const auto* entry = header.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(tensor.dtype, entry->dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, entry->shape) << tensor.name;
    const auto wanted =
        content.substr(static_cast<std::size_t>(header.data_begin + entry->begin),
                       static_cast<std::size_t>(entry->end - entry->begin));
    EXPECT_TRUE(bytes_of(file, tensor) == wanted) << pt << ": " << tensor.name;
  }
}

TEST(TorchFile, WhatPyTorchSavesIsReadToTheBitAndTheRestIsRefused) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  expect_oracle_agrees("torch_save.py", {folder.path().string()});
  int same = 0, refused = 0;
  for (const auto& name : names_in(folder.path())) {
    const auto path = folder.path() / name;
    if (path.extension() != ".pt") continue;
    if (name.starts_with("refused_")) {
      const auto text = error_text(Fault::io, [&] { storage::TorchFile file(path); });
      EXPECT_THAT(text, testing::HasSubstr(name));
      ++refused;
    } else {
      expect_same(path, Path(path).replace_extension(".safetensors"));
      ++same;
    }
  }
  EXPECT_EQ(same, 9);
  EXPECT_EQ(refused, 5);
  EXPECT_THAT(storage::TorchFile(folder.path() / "with_extra.pt").left_out(),
              testing::ElementsAre("_extra"));
}

TEST(TorchFile, IsToldApartFromSafetensorsWhateverTheLengthOfTheHeader) {
  const files::TemporaryDirectory folder;
  const auto is_torch = [&](const std::string& content) {
    write_file(folder.path() / "x", content);
    return storage::is_torch_file(folder.path() / "x");
  };
  EXPECT_TRUE(is_torch("PK\x03\x04 and so on"));
  EXPECT_TRUE(is_torch("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j"));
  EXPECT_TRUE(is_torch("\x80\x02"));
  // Headers of 0x0180, 0x9080 and 0x4b50 ("PK") bytes.
  for (const char* length : {"\x80\x01", "\x80\x90", "PK"}) {
    EXPECT_FALSE(is_torch(length + std::string(6, '\0') + "{\"a\":"));
  }
  for (const char* other : {"", "P", "text"}) EXPECT_FALSE(is_torch(other));
  EXPECT_FALSE(storage::is_torch_file(folder.path() / "none"));
}

TEST(TorchFile, WhatIsNoZipIsRefused) {
  const files::TemporaryDirectory folder;
  for (const std::string content : {"", "PK", "no zip at all", "PK\x05\x06"}) {
    write_file(folder.path() / "x.pt", content);
    EXPECT_THAT(
        error_text(Fault::io, [&] { storage::TorchFile file(folder.path() / "x.pt"); }),
        testing::HasSubstr("x.pt"));
  }
}

TEST(TorchFile, EveryDtypeWithAPlainNameGoesOutAndComesBack) {
  const files::TemporaryDirectory folder;
  const auto path = folder.path() / "x.pt";
  std::vector<storage::SafetensorsEntry> entries;
  for (const auto* dtype :
       {"F64", "C64", "I64", "F32", "I32", "F16", "BF16", "I16", "I8", "U8", "BOOL"}) {
    entries.push_back({.name = str("t.", dtype), .dtype = dtype, .shape = {2, 3}});
  }
  entries.push_back({.name = "scalar", .dtype = "F32", .shape = {}});
  entries.push_back({.name = "empty", .dtype = "F32", .shape = {0, 3}});
  storage::place(entries);
  const auto content = [](const storage::SafetensorsEntry& entry) {
    std::string bytes;
    for (auto i = entry.begin; i < entry.end; ++i) {
      bytes += static_cast<char>(i * 37 % 251);
    }
    return bytes;
  };
  storage::write_torch_file(path, entries, [&](const auto& entry, const auto& give) {
    const auto bytes = content(entry);
    const auto all = std::as_bytes(std::span(bytes));
    give(all.first(all.size() / 2));
    give(all.subspan(all.size() / 2));
  });
  const storage::TorchFile file(path);
  ASSERT_EQ(file.tensors().size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.name, entries[i].name);
    EXPECT_EQ(tensor.dtype, entries[i].dtype);
    EXPECT_EQ(tensor.shape, entries[i].shape);
    EXPECT_EQ(tensor.storage_begin % 64, 0);
    EXPECT_TRUE(bytes_of(file, tensor) == content(entries[i])) << tensor.name;
  }
}

TEST(TorchFile, ADtypeWithoutAPlainNameIsNotWritten) {
  const files::TemporaryDirectory folder;
  std::vector<storage::SafetensorsEntry> entries = {
      {.name = "a", .dtype = "F8_E4M3", .shape = {2}}};
  storage::place(entries);
  EXPECT_THAT(error_text(Fault::config,
                         [&] {
                           storage::write_torch_file(folder.path() / "x.pt", entries,
                                                     [](const auto&, const auto&) {});
                         }),
              testing::HasSubstr("'a' is F8_E4M3"));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace lockstep::test
