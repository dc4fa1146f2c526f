#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::storage {

// Refuses whatever a handler does not expect: handlers override the expected events.
// Nothing is kept of a document, so that a hostile one costs no more memory than it has
// bytes.
class StrictSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;  // the reason why the last call returned false

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_unsigned(std::uint64_t) override { return refuse("a number"); }
  bool number_float(double, const std::string& text) override { return refuse(text); }
  bool string(std::string&) override { return refuse("a text"); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary"); }
  bool start_object(std::size_t) override { return refuse("an object"); }
  bool key(std::string&) override { return refuse("a key"); }
  bool end_object() override { return refuse("the end of an object"); }
  bool start_array(std::size_t) override { return refuse("an array"); }
  bool end_array() override { return refuse("the end of an array"); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::json::exception&) override {
    problem = "it is not JSON from byte " + std::to_string(at) + " on";
    return false;
  }

 protected:
  bool refuse(const std::string& what) {
    problem = what + " stands where it cannot";
    return false;
  }
};

}  // namespace lockstep::storage
