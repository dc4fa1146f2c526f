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
  file.read(tensor, 0, half, out.first(cut));
  file.read(tensor, half, count - half, out.subspan(cut));
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

TEST(TorchFile, WhatIsNoZipIsRefused) {
  const files::TemporaryDirectory folder;
  for (const std::string content : {"", "PK", "no zip at all", "PK\x05\x06"}) {
    write_file(folder.path() / "x.pt", content);
    EXPECT_THAT(
        error_text(Fault::io, [&] { storage::TorchFile file(folder.path() / "x.pt"); }),
        testing::HasSubstr("x.pt"));
  }
}

}  // namespace
}  // namespace lockstep::test
