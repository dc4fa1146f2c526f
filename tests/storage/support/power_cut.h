#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/storage/support/hooked_files.h"
#include "tests/support/support.h"

namespace lockstep::test {

// What is left of data, or of names in directories, that were not synced before the
// power went: a disk may have written all of it, nothing, or a part. Torn names: those
// in the directories of checkpoints were written, those of checkpoints were not.
enum class Unsynced { kept, lost, torn };

// A disk as a file system may leave it: it goes through recorded operations, and knows
// beside what a process would see what has been synced.
class PowerCut {
 public:
  explicit PowerCut(Path root) : root_(std::move(root)) {}

  void apply(const Operation& operation) {
    const auto node = [&] { return find(operation.path); };
    switch (operation.act) {
      case Act::create:
        set(operation.path, std::make_shared<Node>());
        break;
      case Act::reserve:
        break;  // it has no bytes yet that could be lost
      case Act::write: {
        auto& data = node()->data;
        const auto end =
            static_cast<std::size_t>(operation.offset) + operation.bytes.size();
        if (data.size() < end) data.resize(end);
        data.replace(static_cast<std::size_t>(operation.offset), operation.bytes.size(),
                     operation.bytes);
        break;
      }
      case Act::truncate:
        node()->data.resize(static_cast<std::size_t>(operation.offset));
        break;
      case Act::sync:
        node()->synced_data = node()->data;
        break;
      case Act::close:
        break;
      case Act::make_directory:
        set(operation.path, std::make_shared<Node>())->is_directory = true;
        break;
      case Act::rename: {
        const auto moved = node();
        find(operation.path.parent_path())->names.erase(operation.path.filename());
        set(operation.other, moved);
        break;
      }
      case Act::exchange: {
        const auto a = node(), b = find(operation.other);
        set(operation.path, b);
        set(operation.other, a);
        break;
      }
      case Act::remove:
        find(operation.path.parent_path())->names.erase(operation.path.filename());
        break;
      case Act::link:
        set(operation.path, std::make_shared<Node>())->target = operation.other;
        break;
      case Act::sync_directory:
        node()->synced_names = node()->names;
        break;
    }
  }

  // What a machine finds when it comes up again, made below `place`.
  void restore(const Path& place, Unsynced data, Unsynced names) const {
    restore(*top_, place, data, names, 0);
  }

 private:
  struct Node {
    bool is_directory = false;
    std::string target;  // of a link
    std::string data, synced_data;
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
  };

  std::shared_ptr<Node> find(const Path& path) const {
    auto node = top_;
    if (path == root_) return node;
    for (const auto& part : path.lexically_relative(root_)) node = node->names.at(part);
    return node;
  }

  std::shared_ptr<Node> set(const Path& path, std::shared_ptr<Node> node) {
    find(path.parent_path())->names[path.filename()] = node;
    return node;
  }

  static void restore(const Node& node, const Path& place, Unsynced data,
                      Unsynced names, int depth) {
    if (!node.target.empty())
      return std::filesystem::create_symlink(node.target, place);
    if (!node.is_directory) {
      auto content = data == Unsynced::lost ? node.synced_data : node.data;
      if (data == Unsynced::torn && node.data != node.synced_data) {
        content.resize(content.size() / 2);
      }
      return write_file(place, content);
    }
    std::filesystem::create_directories(place);
    const bool kept = names == Unsynced::kept || (names == Unsynced::torn && depth > 1);
    for (const auto& [name, child] : kept ? node.names : node.synced_names) {
      restore(*child, place / name, data, names, depth + 1);
    }
  }

  Path root_;
  std::shared_ptr<Node> top_ = [] {
    auto node = std::make_shared<Node>();
    node->is_directory = true;
    return node;
  }();
};

}  // namespace lockstep::test
