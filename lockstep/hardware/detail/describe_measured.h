#pragma once

#include "lockstep/hardware/gpu_check.h"
#include "lockstep/hardware/measured.h"

namespace lockstep::hardware {

template <typename Visitor>
void describe(MeasuredGpu& g, Visitor& v) {
  v.field("index", g.index);
  v.field("uuid", g.uuid);
  v.field("copy", g.copy);
  v.field("from_host", g.from_host);
  v.field("to_host", g.to_host);
  v.field("bf16_flops", g.bf16_flops);
  v.field("fp32_flops", g.fp32_flops);
}

template <typename Visitor>
void describe(MeasuredPair& p, Visitor& v) {
  v.field("first", p.first);
  v.field("second", p.second);
  v.field("copy", p.copy);
  v.field("problem", p.problem);
}

template <typename Visitor>
void describe(MeasuredCollective& c, Visitor& v) {
  v.field("backend", c.backend);
  v.field("ranks", c.ranks);
  v.field("bytes", c.bytes);
  v.field("seconds", c.seconds);
}

template <typename Visitor>
void describe(Measured& m, Visitor& v) {
  v.field("date", m.date);
  v.field("host_copy", m.host_copy);
  v.field("cpu_flops", m.cpu_flops);
  v.field("gpus", m.gpus);
  v.field("pairs", m.pairs);
  v.field("collectives", m.collectives);
}

template <typename Visitor>
void describe(GpuCheckStep& s, Visitor& v) {
  v.field("what", s.what);
  v.field("problem", s.problem);
  v.field("seconds", s.seconds);
}

template <typename Visitor>
void describe(GpuCheck& c, Visitor& v) {
  v.field("index", c.index);
  v.field("steps", c.steps);
}

}  // namespace lockstep::hardware
