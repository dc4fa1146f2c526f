// A reader of pickles that builds values and calls nothing.
#include "lockstep/storage/detail/pickle.h"

#include <map>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::storage {
namespace {

using Kind = PickleValue::Kind;

// A state dict needs about twenty values a tensor; a byte of a hostile pickle could ask
// for a value each.
constexpr std::size_t kMostValues = 4'000'000;

// A name that is not here could be anything that Python can import: it is refused.
bool is_allowed(const std::string& name) {
  static const std::set<std::string, std::less<>> kAllowed = {
      "collections.OrderedDict",
      "torch._utils._rebuild_tensor_v2",
      "torch._utils._rebuild_tensor_v3",
      "torch._utils._rebuild_parameter",
      "torch.Size",
      "torch.storage.UntypedStorage",
      "torch.serialization._get_layout"};
  if (kAllowed.count(name) > 0) return true;
  // torch.FloatStorage, and dtypes such as torch.float8_e5m2; an unknown one is refused
  // when it is used.
  return name.starts_with("torch.") && name.find('.', 6) == std::string::npos &&
         (name.ends_with("Storage") || name.find("int") == 6 ||
          name.find("float") == 6 || name.find("uint") == 6 || name == "torch.bool" ||
          name == "torch.bfloat16" || name.starts_with("torch.complex"));
}

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const FindStorage& find)
      : bytes_(bytes), find_(find) {}

  Pickle run() {
    while (!step(byte())) {
    }
    if (stack_.size() != 1) refuse("it does not end with one value");
    pickle_.top = stack_.back();
    return std::move(pickle_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Fault::io, parts..., " (byte ", at_, " of data.pkl)");
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) refuse("the pickle is torn");
    const auto part = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return part;
  }

  unsigned char byte() { return static_cast<unsigned char>(take(1)[0]); }

  std::uint64_t number(std::size_t width) {
    const auto part = take(width);
    std::uint64_t value = 0;
    for (auto i = width; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(part[i]);
    }
    return value;
  }

  std::string_view line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("the pickle is torn");
    const auto part = take(end - at_);
    ++at_;
    return part;
  }

  PickleValue& push(Kind kind) {
    if (pickle_.values.size() == kMostValues) refuse("it has too many values");
    auto& value = pickle_.values.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return value;
  }

  void push_integer(std::int64_t integer) { push(Kind::integer).integer = integer; }
  void push_text(std::string_view text) { push(Kind::text).text = text; }

  PickleValue* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      refuse("it takes a value that is not there");
    }
    auto* value = stack_.back();
    stack_.pop_back();
    return value;
  }

  PickleValue& top() {
    auto* value = pop();
    stack_.push_back(value);
    return *value;
  }

  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty()) refuse("a mark is missing");
    const auto mark = static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<const PickleValue*> items(stack_.begin() + mark, stack_.end());
    stack_.erase(stack_.begin() + mark, stack_.end());
    return items;
  }

  void push_tuple(std::size_t count) {
    std::vector<const PickleValue*> items(count);
    for (auto i = count; i-- > 0;) items[i] = pop();
    push(Kind::sequence).items = std::move(items);
  }

  void push_name(const std::string& name) {
    if (!is_allowed(name)) {
      refuse("it wants to use '", name,
             "', which is no part of a state dict; nothing was executed. Save only "
             "tensors: torch.save(model.state_dict(), ...)");
    }
    push(Kind::name).text = name;
  }

  void push_long(std::size_t width) {
    if (width > 8) refuse("a number has ", width, " bytes");
    auto value = number(width);
    if (width > 0 && width < 8 && (value >> (8 * width - 1) & 1) != 0) {
      value |= ~std::uint64_t{0} << (8 * width);
    }
    push_integer(static_cast<std::int64_t>(value));
  }

  void set_items(const std::vector<const PickleValue*>& items) {
    auto& dict = top();
    if (dict.kind != Kind::dict || items.size() % 2 != 0) refuse("a dict is torn");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      dict.pairs.emplace_back(items[i], items[i + 1]);
    }
  }

  void append_items(const std::vector<const PickleValue*>& items) {
    auto& list = top();
    if (list.kind != Kind::sequence) refuse("a list is torn");
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  // ("storage", class, key, location, number of elements)
  void persistent() {
    const auto* id = pop();
    if (id->kind != Kind::sequence || id->items.size() < 5 ||
        id->items[0]->text != "storage" || id->items[1]->kind != Kind::name ||
        id->items[2]->kind != Kind::text) {
      refuse("a storage is torn");
    }
    const auto key = id->items[2]->text, type = id->items[1]->text;
    auto& storage = push(Kind::storage);
    storage.text = key;
    storage.global = type;
  }

  void reduce() {
    const auto* arguments = pop();
    const auto* callee = pop();
    if (callee->kind != Kind::name || arguments->kind != Kind::sequence) {
      refuse("it calls what is no function");
    }
    const auto& name = callee->text;
    if (name == "collections.OrderedDict") {
      if (!arguments->items.empty()) refuse("an OrderedDict is made of something");
      push(Kind::dict);
    } else if (name.starts_with("torch._utils._rebuild_tensor_v")) {
      auto tensor = rebuilt_tensor(name, *arguments, find_);
      push(Kind::tensor).tensor = std::make_unique<TorchTensor>(std::move(tensor));
    } else if (name == "torch._utils._rebuild_parameter") {
      if (arguments->items.empty() || arguments->items[0]->kind != Kind::tensor) {
        refuse("a parameter is no tensor");
      }
      const auto& data = *arguments->items[0]->tensor;
      push(Kind::tensor).tensor = std::make_unique<TorchTensor>(data);
    } else if (name == "torch.Size") {
      if (arguments->items.size() != 1 ||
          arguments->items[0]->items.size() > kMostTensorDimensions) {
        refuse("a size is torn");
      }
      const auto items = arguments->items[0]->items;
      push(Kind::sequence).items = items;
    } else {
      refuse("it calls '", name, "'");
    }
  }

  void build() {
    pop();  // attributes, such as the versions of modules: of no use here
    if (top().kind != Kind::dict) refuse("it sets attributes of what is no dict");
  }

  void memoize(std::uint64_t index) { memo_[index] = &top(); }

  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("value ", index, " is not there");
    stack_.push_back(found->second);
  }

  // Returns true at the end.
  bool step(unsigned char code) {
    switch (code) {
      case 0x80:  // protocol
        if (const auto version = byte(); version < 2 || version > 5) {
          refuse("pickle protocol ", static_cast<int>(version));
        }
        return false;
      case 0x95:  // frame
        take(8);
        return false;
      case '.':
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return false;
      default:
        if (!plain(code) && !container(code) && !special(code)) {
          refuse("operation ", static_cast<int>(code), " is not allowed");
        }
        return false;
    }
  }

  bool plain(unsigned char code) {
    switch (code) {
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
      case 0x89:
        push(Kind::boolean).integer = code == 0x88;
        return true;
      case 'K':
        push_integer(static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':
        push_integer(static_cast<std::int64_t>(number(2)));
        return true;
      case 'J':
        push_integer(static_cast<std::int32_t>(number(4)));
        return true;
      case 0x8a:
        push_long(byte());
        return true;
      case 'G':
        take(8);
        push(Kind::real);
        return true;
      case 0x8c:  // texts and bytes, by the width of their length
      case 'U':
      case 'C':
        push_text(take(number(1)));
        return true;
      case 'X':
      case 'T':
      case 'B':
        push_text(take(number(4)));
        return true;
      case 0x8d:
        push_text(take(number(8)));
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char code) {
    switch (code) {
      case ')':
      case ']':
        push(Kind::sequence);
        return true;
      case '}':
        push(Kind::dict);
        return true;
      case 't': {
        auto items = pop_to_mark();
        push(Kind::sequence).items = std::move(items);
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple(code - 0x84U);
        return true;
      case 's': {
        const auto* value = pop();
        const auto* key = pop();
        set_items({key, value});
        return true;
      }
      case 'u':
        set_items(pop_to_mark());
        return true;
      case 'a':
        append_items({pop()});
        return true;
      case 'e':
        append_items(pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  bool special(unsigned char code) {
    switch (code) {
      case 'c': {
        const std::string module(line());
        push_name(module + "." + std::string(line()));
        return true;
      }
      case 0x93: {
        const auto* name = pop();
        const auto* module = pop();
        push_name(module->text + "." + name->text);
        return true;
      }
      case 'q':
        memoize(number(1));
        return true;
      case 'r':
        memoize(number(4));
        return true;
      case 0x94:
        memoize(memo_.size());
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      case 'Q':
        persistent();
        return true;
      case 'R':
        reduce();
        return true;
      case 'b':
        build();
        return true;
      default:
        return false;
    }
  }

  std::string_view bytes_;
  const FindStorage& find_;
  std::size_t at_ = 0;
  Pickle pickle_;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleValue*> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view bytes, const FindStorage& find,
                   const std::string& place) {
  try {
    return Unpickler(bytes, find).run();
  } catch (const Error& error) {
    throw Error(Fault::io, place, ": ", error.what());
  }
}

}  // namespace lockstep::storage
