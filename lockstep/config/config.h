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
  v.section("run", c.run, "The run directory, and the seed.");
  v.section("model", c.model, "The model.");
  v.section("models", c.models, "Where pretrained models are kept.");
  v.section("lora", c.lora, "Low-rank adapters (LoRA) beside frozen weights.");
  v.section("data", c.data, "The data set.");
  v.section("augment", c.augment, "Data augmentation of training samples.");
  v.section("task", c.task, "The task: its losses and its metrics.");
  v.section("batch", c.batch, "Batch sizes and gradient accumulation.");
  v.section("optim", c.optim, "The optimizer.");
  v.section("schedule", c.schedule, "The learning-rate schedule.");
  v.section("ema", c.ema, "Exponential moving average of the weights.");
  v.section("train", c.train, "How long to train, and what is logged.");
  v.section("eval", c.eval, "When the model is evaluated, and by which metrics.");
  v.section("early_stop", c.early_stop,
            "The metric that decides which weights are best, and when to stop early.");
  v.section(
      "memory", c.memory,
      "Activation checkpointing, offloading, and what happens when memory runs out.");
  v.section("precision", c.precision, "Mixed precision and loss scaling.");
  v.section("parallel", c.parallel, "Devices, ranks and the parallel strategy.");
  v.section("planner", c.planner, "How `auto` is filled in.");
  v.section("comm", c.comm, "Communication between ranks.");
  v.section("watch", c.watch, "Detection of hanging and slow ranks.");
  v.section("checkpoint", c.checkpoint,
            "Checkpoints: what is saved, when, and what is resumed from.");
  v.section("monitor", c.monitor, "Metrics, sinks and alerts.");
  v.section("profile", c.profile, "Profiling of steps.");
}

}  // namespace lockstep::config
