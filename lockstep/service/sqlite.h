#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::service {

// A prepared statement in use: binds its parameters in order, then walks over rows.
// Given back to its database when it ends.
class Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement) noexcept
      : database_(database), statement_(statement) {}
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  Statement& bind(std::int64_t value);
  Statement& bind(int value) { return bind(static_cast<std::int64_t>(value)); }
  Statement& bind(double value);
  Statement& bind(std::string_view value);
  Statement& bind(const char* value) { return bind(std::string_view(value)); }
  Statement& bind(const std::string& value) { return bind(std::string_view(value)); }
  Statement& bind(const std::optional<std::int64_t>& value);

  // Returns false after the last row. Throws Fault::io when the database refuses.
  bool step();
  void run() {
    while (step()) {
    }
  }

  std::int64_t integer(int column) const;
  double number(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;

 private:
  void check(int code) const;

  sqlite3* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

// One connection to a database file, in WAL mode: readers never wait for a writer, and
// what was committed survives a kill and a power cut. Other processes may have the same
// file open.
//
// Threads: one at a time.
class Database {
 public:
  // Makes the file, readable by its owner only, if it is not there. Throws Fault::io.
  explicit Database(const std::filesystem::path& file);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void execute(const std::string& sql);  // any number of statements
  Statement prepare(std::string_view sql);

  std::int64_t last_row() const;
  std::int64_t changes() const;        // rows of the last statement
  std::int64_t total_changes() const;  // rows of all statements of this connection

  // Throws Fault::io if the file was removed or replaced since it was opened: what is
  // written then is nowhere when this process has ended.
  void check_in_place() const;

  // Copies the database as it is at one moment, while others write.
  void back_up_to(const std::filesystem::path& file);

 private:
  sqlite3* database_ = nullptr;
  std::filesystem::path file_;
  std::pair<std::uint64_t, std::uint64_t> identity_{};  // of the file: device, inode
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

// BEGIN IMMEDIATE ... COMMIT; rolled back if commit() was not called.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace lockstep::service
