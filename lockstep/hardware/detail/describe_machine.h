#pragma once

#include "lockstep/hardware/detail/describe.h"
#include "lockstep/hardware/detail/describe_measured.h"

namespace lockstep::hardware {

template <typename Visitor>
void describe(CpuCache& c, Visitor& v) {
  v.field("level", c.level);
  v.field("type", c.type);
  v.field("size_bytes", c.size_bytes);
  v.field("count", c.count);
}

template <typename Visitor>
void describe(NumaNode& n, Visitor& v) {
  v.field("node", n.node);
  v.field("cpus", n.cpus);
  v.field("memory_total_bytes", n.memory_total_bytes);
  v.field("memory_free_bytes", n.memory_free_bytes);
}

template <typename Visitor>
void describe(Disk& d, Visitor& v) {
  v.field("path", d.path);
  v.field("mount", d.mount);
  v.field("filesystem", d.filesystem);
  v.field("total_bytes", d.total_bytes);
  v.field("free_bytes", d.free_bytes);
  v.field("writable", d.writable);
  v.field("rotational", d.rotational);
}

template <typename Visitor>
void describe(NetworkInterface& n, Visitor& v) {
  v.field("name", n.name);
  v.field("kind", n.kind);
  v.field("state", n.state);
  v.field("speed_mbits", n.speed_mbits);
  v.field("mtu", n.mtu);
  v.field("numa_node", n.numa_node);
  v.field("addresses", n.addresses);
}

template <typename Visitor>
void describe(Machine& m, Visitor& v) {
  v.field("hostname", m.hostname);
  v.field("os", m.os);
  v.field("kernel", m.kernel);
  v.field("cpu_model", m.cpu_model);
  v.field("physical_cores", m.physical_cores);
  v.field("logical_cores", m.logical_cores);
  v.field("sockets", m.sockets);
  v.field("memory_total_bytes", m.memory_total_bytes);
  v.field("memory_available_bytes", m.memory_available_bytes);
  v.field("driver_version", m.driver_version);
  v.field("cuda_driver_version", m.cuda_driver_version);
  v.field("gpu_note", m.gpu_note);
  v.field("gpus", m.gpus);
  v.field("unusable_gpus", m.unusable_gpus);
  v.field("hidden_gpus", m.hidden_gpus);
  v.field("gpu_pairs", m.gpu_pairs);
  v.field("omp_num_threads", m.omp_num_threads);
  v.field("cpu_extensions", m.cpu_extensions);
  v.field("cpu_caches", m.cpu_caches);
  v.field("max_cpu_mhz", m.max_cpu_mhz);
  v.field("numa_nodes", m.numa_nodes);
  v.field("cgroup_cores", m.cgroup_cores);
  v.field("cgroup_memory_bytes", m.cgroup_memory_bytes);
  v.field("swap_total_bytes", m.swap_total_bytes);
  v.field("swap_free_bytes", m.swap_free_bytes);
  v.field("shared_memory_bytes", m.shared_memory_bytes);
  v.field("disk", m.disk);
  v.field("network", m.network);
  v.field("rdma_devices", m.rdma_devices);
  v.field("measured", m.measured);
}

}  // namespace lockstep::hardware
