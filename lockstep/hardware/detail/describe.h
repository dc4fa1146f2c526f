#pragma once

#include "lockstep/hardware/machine.h"

// The only list of the fields of a machine: writing and reading JSON are visitors of
// it.
namespace lockstep::hardware {

template <typename Visitor>
void describe(GpuStatus& s, Visitor& v) {
  v.field("memory_used_bytes", s.memory_used_bytes);
  v.field("memory_free_bytes", s.memory_free_bytes);
  v.field("memory_reserved_bytes", s.memory_reserved_bytes);
  v.field("utilization_percent", s.utilization_percent);
  v.field("memory_utilization_percent", s.memory_utilization_percent);
  v.field("temperature_celsius", s.temperature_celsius);
  v.field("power_watts", s.power_watts);
  v.field("energy_joules", s.energy_joules);
  v.field("sm_clock_mhz", s.sm_clock_mhz);
  v.field("memory_clock_mhz", s.memory_clock_mhz);
  v.field("throttle_reasons", s.throttle_reasons);
  v.field("ecc_corrected", s.ecc_corrected);
  v.field("ecc_uncorrected", s.ecc_uncorrected);
  v.field("pcie_replays", s.pcie_replays);
  v.field("nvlink_sent_bytes", s.nvlink_sent_bytes);
  v.field("nvlink_received_bytes", s.nvlink_received_bytes);
}

template <typename Visitor>
void describe(RemappedRows& r, Visitor& v) {
  v.field("corrected", r.corrected);
  v.field("uncorrected", r.uncorrected);
  v.field("pending", r.pending);
  v.field("failed", r.failed);
}

template <typename Visitor>
void describe(NvLink& l, Visitor& v) {
  v.field("link", l.link);
  v.field("version", l.version);
  v.field("remote_pci_id", l.remote_pci_id);
  v.field("to_switch", l.to_switch);
}

template <typename Visitor>
void describe(GpuProcess& p, Visitor& v) {
  v.field("pid", p.pid);
  v.field("name", p.name);
  v.field("user", p.user);
  v.field("memory_bytes", p.memory_bytes);
}

template <typename Visitor>
void describe(XidError& e, Visitor& v) {
  v.field("xid", e.xid);
  v.field("message", e.message);
}

template <typename Visitor>
void describe(Gpu& g, Visitor& v) {
  v.field("index", g.index);
  v.field("name", g.name);
  v.field("uuid", g.uuid);
  v.field("pci_id", g.pci_id);
  v.field("memory_total_bytes", g.memory_total_bytes);
  v.field("compute_major", g.compute_major);
  v.field("compute_minor", g.compute_minor);
  v.field("nvml_index", g.nvml_index);
  v.field("mig_parent", g.mig_parent);
  v.field("multiprocessors", g.multiprocessors);
  v.field("max_threads_per_block", g.max_threads_per_block);
  v.field("max_threads_per_multiprocessor", g.max_threads_per_multiprocessor);
  v.field("shared_memory_per_block_bytes", g.shared_memory_per_block_bytes);
  v.field("shared_memory_per_multiprocessor_bytes",
          g.shared_memory_per_multiprocessor_bytes);
  v.field("l2_bytes", g.l2_bytes);
  v.field("memory_bus_bits", g.memory_bus_bits);
  v.field("max_sm_clock_mhz", g.max_sm_clock_mhz);
  v.field("max_memory_clock_mhz", g.max_memory_clock_mhz);
  v.field("power_limit_watts", g.power_limit_watts);
  v.field("slowdown_celsius", g.slowdown_celsius);
  v.field("pcie_generation", g.pcie_generation);
  v.field("pcie_width", g.pcie_width);
  v.field("max_pcie_generation", g.max_pcie_generation);
  v.field("max_pcie_width", g.max_pcie_width);
  v.field("persistence", g.persistence);
  v.field("compute_mode", g.compute_mode);
  v.field("ecc_enabled", g.ecc_enabled);
  v.field("remapped_rows", g.remapped_rows);
  v.field("numa_node", g.numa_node);
  v.field("cpus_near", g.cpus_near);
  v.field("nvlinks", g.nvlinks);
  v.field("processes", g.processes);
  v.field("xid_errors", g.xid_errors);
  v.field("status", g.status);
}

template <typename Visitor>
void describe(UnusableGpu& u, Visitor& v) {
  v.field("nvml_index", u.nvml_index);
  v.field("reason", u.reason);
}

template <typename Visitor>
void describe(GpuPair& p, Visitor& v) {
  v.field("first", p.first);
  v.field("second", p.second);
  v.field("nvlinks", p.nvlinks);
  v.field("path", p.path);
  v.field("peer_access", p.peer_access);
}

}  // namespace lockstep::hardware
