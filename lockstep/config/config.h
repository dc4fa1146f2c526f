#pragma once

#include "lockstep/config/augment.h"
#include "lockstep/config/batch.h"
#include "lockstep/config/checkpoint.h"
#include "lockstep/config/comm.h"
#include "lockstep/config/data.h"
#include "lockstep/config/early_stop.h"
#include "lockstep/config/ema.h"
#include "lockstep/config/eval.h"
#include "lockstep/config/lora.h"
#include "lockstep/config/memory.h"
#include "lockstep/config/model.h"
#include "lockstep/config/models.h"
#include "lockstep/config/monitor.h"
#include "lockstep/config/optim.h"
#include "lockstep/config/parallel.h"
#include "lockstep/config/planner.h"
#include "lockstep/config/precision.h"
#include "lockstep/config/profile.h"
#include "lockstep/config/run.h"
#include "lockstep/config/schedule.h"
#include "lockstep/config/task.h"
#include "lockstep/config/train.h"
#include "lockstep/config/watch.h"

namespace lockstep::config {

// Every knob of Lockstep. Reading, printing and checking them: config/load.h,
// config/print.h.
struct Config {
  RunConfig run;
  ModelConfig model;
  ModelsConfig models;
  LoraConfig lora;
  DataConfig data;
  AugmentConfig augment;
  TaskConfig task;
  BatchConfig batch;
  OptimConfig optim;
  ScheduleConfig schedule;
  EmaConfig ema;
  TrainConfig train;
  EvalConfig eval;
  EarlyStopConfig early_stop;
  MemoryConfig memory;
  PrecisionConfig precision;
  ParallelConfig parallel;
  PlannerConfig planner;
  CommConfig comm;
  WatchConfig watch;
  CheckpointConfig checkpoint;
  MonitorConfig monitor;
  ProfileConfig profile;
};

// The only list of the sections; each section's describe() is the only list of its
// fields.
template <typename Visitor>
void describe(Config& c, Visitor& v) {
  v.section("run", c.run, "Where a run is kept, and its seed.");
  v.section("model", c.model, "What is trained.");
  v.section("models", c.models, "Where models are kept that recipes name.");
  v.section("lora", c.lora, "Low-rank adapters beside weights that stay as they are.");
  v.section("data", c.data, "What it is trained on.");
  v.section("augment", c.augment, "How training samples are varied.");
  v.section("task", c.task, "What is learnt, and what is said of it.");
  v.section("batch", c.batch, "How many samples make a step.");
  v.section("optim", c.optim, "How the weights are updated.");
  v.section("schedule", c.schedule, "How the learning rate moves.");
  v.section("ema", c.ema, "An average of the weights.");
  v.section("train", c.train, "How long, and what is reported.");
  v.section("eval", c.eval, "When the model is evaluated, and by what.");
  v.section("early_stop", c.early_stop, "What is better, and when there is no hope.");
  v.section("memory", c.memory, "What is kept, and what happens when it is too much.");
  v.section("precision", c.precision, "The arithmetic.");
  v.section("parallel", c.parallel, "Devices, ranks and how they share the work.");
  v.section("planner", c.planner, "How `auto` is filled in.");
  v.section("comm", c.comm, "How ranks exchange tensors.");
  v.section("watch", c.watch, "When a rank counts as hanging.");
  v.section("checkpoint", c.checkpoint, "What outlives the process.");
  v.section("monitor", c.monitor, "What is shown and recorded.");
  v.section("profile", c.profile, "Where the time of a step goes.");
}

}  // namespace lockstep::config
