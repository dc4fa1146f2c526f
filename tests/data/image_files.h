#pragma once

#include <cstdio>
#include <string>

#include <png.h>
#include <turbojpeg.h>

#include <torch/torch.h>

#include "tests/support/support.h"

namespace lockstep::test {

// Bytes of a JPEG of (H, W, 3) pixels, written by libjpeg-turbo itself.
inline std::string jpeg_bytes(const torch::Tensor& pixels, int quality = 95) {
  const auto rgb = pixels.contiguous();
  void* handle = ::tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  EXPECT_EQ(
      ::tjCompress2(handle, rgb.data_ptr<std::uint8_t>(), static_cast<int>(rgb.size(1)),
                    0, static_cast<int>(rgb.size(0)), TJPF_RGB, &out, &size, TJSAMP_444,
                    quality, 0),
      0);
  std::string bytes(reinterpret_cast<char*>(out), size);
  ::tjFree(out);
  ::tjDestroy(handle);
  return bytes;
}

// Bytes of a PNG of (H, W, 3) pixels.
inline std::string png_bytes(const torch::Tensor& pixels) {
  const auto rgb = pixels.contiguous();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(rgb.size(0));
  image.width = static_cast<png_uint_32>(rgb.size(1));
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  ::png_image_write_to_memory(&image, nullptr, &size, 0, rgb.data_ptr(), 0, nullptr);
  std::string bytes(size, '\0');
  EXPECT_NE(::png_image_write_to_memory(&image, bytes.data(), &size, 0, rgb.data_ptr(),
                                        0, nullptr),
            0);
  bytes.resize(size);
  return bytes;
}

// A smooth picture, which JPEG keeps well: (H, W, 3).
inline torch::Tensor picture(std::int64_t height, std::int64_t width, int seed = 0) {
  const auto y = torch::arange(height).view({-1, 1, 1}).to(torch::kFloat32) / height;
  const auto x = torch::arange(width).view({1, -1, 1}).to(torch::kFloat32) / width;
  const auto c = torch::tensor({0.3, 0.6, 0.9}, torch::kFloat32).view({1, 1, 3});
  return ((torch::sin(6 * x * c + seed) + torch::cos(5 * y * c)) * 60 + 128)
      .to(torch::kUInt8);
}

}  // namespace lockstep::test
