#include "lockstep/service/sqlite.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::service {
namespace {

[[noreturn]] void refuse(sqlite3* database, const std::string& what) {
  const std::string reason =
      database == nullptr ? "no memory" : sqlite3_errmsg(database);
  const bool full =
      database != nullptr && (sqlite3_errcode(database) & 0xff) == SQLITE_FULL;
  throw Error(Fault::io, "database: ", what, ": ", reason,
              full ? "; free some space on its disk" : "");
}

// SQLite would make it readable by all. Its -wal and -shm files get the same
// permissions. One that is there is not opened: when any descriptor of a file is
// closed, this process loses the locks that SQLite has on it, and the next process that
// ends takes itself for the last one and removes the -wal file under us.
void make_file(const files::Path& file) {
  const files::Descriptor made(
      ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (made) return;
  struct stat info {};
  if (errno != EEXIST || ::lstat(file.c_str(), &info) != 0) {
    files::fail("open", file, errno);
  }
  if (!S_ISREG(info.st_mode)) files::fail("open", file, ELOOP);
}

// Returns device and inode of a file; zeroes if there is none.
std::pair<std::uint64_t, std::uint64_t> identity_of(const std::filesystem::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      bound_(other.bound_) {}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) refuse(database_, "cannot bind a value");
}

Statement& Statement::bind(std::int64_t value) {
  check(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::bind(double value) {
  check(sqlite3_bind_double(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  // A null pointer would be NULL, which is no empty text.
  const char* bytes = value.data() == nullptr ? "" : value.data();
  check(sqlite3_bind_text(statement_, ++bound_, bytes, static_cast<int>(value.size()),
                          SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind(const std::optional<std::int64_t>& value) {
  if (value) return bind(*value);
  check(sqlite3_bind_null(statement_, ++bound_));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  refuse(database_, "a statement failed");
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Statement::number(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(statement_, column);
  const auto size = sqlite3_column_bytes(statement_, column);
  if (bytes == nullptr) return "";
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

Database::Database(const std::filesystem::path& file) : file_(file) {
  make_file(file);
  if (sqlite3_open_v2(file.c_str(), &database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK) {
    const std::string reason =
        database_ == nullptr ? "no memory" : sqlite3_errmsg(database_);
    sqlite3_close(database_);
    throw Error(Fault::io, "database: cannot open '", file.string(), "': ", reason);
  }
  identity_ = identity_of(file);
  constexpr int kBusyMilliseconds = 10'000;
  sqlite3_busy_timeout(database_, kBusyMilliseconds);
  sqlite3_extended_result_codes(database_, 1);
  try {
    execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; "
        "PRAGMA trusted_schema=OFF;");
  } catch (const Error&) {
    sqlite3_close(database_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(database_);
}

void Database::execute(const std::string& sql) {
  if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    refuse(database_, "a statement failed");
  }
}

Statement Database::prepare(std::string_view sql) {
  const auto known = statements_.find(sql);
  if (known != statements_.end() && sqlite3_stmt_busy(known->second) == 0) {
    return {database_, known->second};
  }
  LOCKSTEP_CHECK(known == statements_.end(), "statement in use: ", sql);
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database_, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    refuse(database_, "a statement is wrong");
  }
  statements_.emplace(std::string(sql), statement);
  return {database_, statement};
}

std::int64_t Database::last_row() const {
  return sqlite3_last_insert_rowid(database_);
}

std::int64_t Database::changes() const {
  return sqlite3_changes(database_);
}

std::int64_t Database::total_changes() const {
  return sqlite3_total_changes(database_);
}

void Database::check_in_place() const {
  if (identity_of(file_) == identity_) return;
  throw Error(Fault::io, "database: '", file_.string(),
              "' was removed or replaced while it was open; stop the server and put it "
              "back (lockstep restore)");
}

void Database::back_up_to(const std::filesystem::path& file) {
  // It may be there if it is empty: made by us, so that others can not read it.
  const files::Descriptor made(
      ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made) files::fail("make", file, errno);
  prepare("VACUUM INTO ?").bind(file.string()).run();
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.check_in_place();
  database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const Error&) {  // SQLite has rolled back by itself
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace lockstep::service
