#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

namespace lockstep::models {

// The buffers of a script, by the tensors that they have now. A script may put another
// tensor in the place of one (self.mean = 0.9 * self.mean + ...); its value goes into
// the first one then, so that checkpoints, other ranks and the next pass see it.
class ScriptBuffers {
 public:
  explicit ScriptBuffers(const torch::jit::Module& module);

  // To be called before a pass. With gradients, the script gets copies of those that it
  // assigns: autograd may keep their values until the backward pass.
  void lend();
  // To be called after it. Throws Fault::config, naming the file, for a value of
  // another shape, and for one of another type unless both are floating point: it is
  // rounded, as autocast's 16-bit results are.
  void take_back(const std::string& file);
  // To be called instead, if the pass has failed: its assignments are lost.
  void withdraw();

 private:
  struct Buffer {
    c10::intrusive_ptr<c10::ivalue::Object> owner;
    std::size_t slot = 0;  // of the owner
    std::string name;
    torch::Tensor tensor;
    bool is_assigned = false;  // by some method of the script
    torch::Tensor lent = {};
    std::int64_t version = 0;  // of `lent`, when it was lent
  };
  std::vector<Buffer> all_;
};

}  // namespace lockstep::models
