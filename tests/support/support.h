#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"

// Helpers for tests of every module.
namespace lockstep::test {

using Path = std::filesystem::path;

// For waits that end at once unless the code is broken.
inline constexpr std::chrono::milliseconds kPatience{20'000};

Path source_root();                      // the checkout
Path binary(const std::string& name);    // build/bin/<name>
Path fixture(const std::string& below);  // tests/<below>

// Runs a program to its end, with `environment` added to ours.
process::Output run(std::vector<std::string> arguments,
                    std::vector<std::pair<std::string, std::string>> environment = {});

// The error that `body` throws, if it throws one.
std::optional<Error> error_of(const std::function<void()>& body);

// The text of the error that `body` throws; a failure of the test if there is none, or
// if it has another fault.
std::string error_text(Fault fault, const std::function<void()>& body);

// Runs `body` in a forked child and returns its result as the child's exit status: for
// what changes a process for good (limits, user ids). -1 if the child crashed.
int in_child(const std::function<int()>& body);

// What a full disk does to a process: no file may grow beyond `bytes`.
void limit_file_size(long bytes);

// A device that is always full, as /dev/full: one of its own in `folder`, where that
// can be made, so that code which replaces it harms nobody.
Path full_device(const Path& folder);

// Files may be read and written only by others: root is above permissions, so a test of
// them has to be somebody else. False if that is not possible.
bool become_nobody();

// Looks every millisecond until `condition` holds; false after thrice kPatience.
bool eventually(const std::function<bool()>& condition);

void write_file(const Path& path, const std::string& content);
std::string read_file(const Path& path);

// The names in a directory, sorted, hidden ones included.
std::vector<std::string> names_in(const Path& directory);

}  // namespace lockstep::test
