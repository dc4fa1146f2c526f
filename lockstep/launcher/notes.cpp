#include "lockstep/launcher/detail/notes.h"

#include "lockstep/base/error.h"

namespace lockstep::launcher {

void Notes::say(std::string_view sentence) const {
  if (job_.say) job_.say(sentence);
}

void Notes::state(run::RunStatus state, const std::string& message) {
  try {
    run_.update_record({state, std::nullopt, message});
  } catch (const Error& error) {
    say(error.what());
  }
}

void Notes::event(std::string_view kind,
                  std::initializer_list<run::NamedValue> fields) {
  try {
    if (!events_) events_.emplace(run_.events(), clock_);
    events_->write(kind, fields);
  } catch (const Error& error) {
    if (!events_failed_) say(error.what());
    events_failed_ = true;
  }
}

}  // namespace lockstep::launcher
