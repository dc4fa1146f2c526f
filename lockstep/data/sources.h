#pragma once

#include <memory>

#include "lockstep/config/data.h"
#include "lockstep/data/split.h"

// The data sets that a recipe can name, one source file each. All of them check as much
// as possible before the first sample is asked for: Fault::io names the file.
namespace lockstep::data {

using Opened = std::unique_ptr<Dataset>;

// Opens fashion_mnist, and idx: four files in MNIST's format (idx.h).
Opened open_fashion_mnist(const config::DataConfig& config, Split split);
Opened open_idx(const config::DataConfig& config, Split split);

// Opens the binary version: data_batch_1.bin ... data_batch_5.bin and test_batch.bin,
// or train.bin and test.bin, in the folder or in the one that the archive makes. A
// sample of CIFAR-100 has its coarse class as the field "coarse".
Opened open_cifar10(const config::DataConfig& config, Split split);
Opened open_cifar100(const config::DataConfig& config, Split split);

// Opens a folder for each class, of JPEG and PNG files: data.dir/train/<class>/... and
// data.dir/val/<class>/..., or data.dir/<class>/... with data.split. Images are RGB.
// With data.resize the middle square of each is brought to that size, a JPEG already
// while it is decoded; without, all must have one size.
Opened open_image_folder(const config::DataConfig& config, Split split);

// Opens files of token numbers (*train*.bin, *val*.bin), mapped into memory: windows of
// data.sequence tokens, the target is the same window one token on.
Opened open_tokens(const config::DataConfig& config, Split split);

// Opens texts in data.dir, of this split by 'val' or 'test' in their path, and turns
// them into tokens by data.tokenizer: windows of data.sequence tokens over .txt files,
// or examples of .jsonl files (examples.h), packed or filled up. The field
// "target_bytes" has the bytes that each target stands for.
Opened open_text(const config::DataConfig& config, Split split);

// Opens train.csv and val.csv, or what their names say of them, or one file with
// data.split: rows of numbers, categories, an image or a text by section `data`
// (detail/table_columns.h). Numbers beside an image or a text are the field "columns",
// data.weight is "target_weight".
Opened open_csv(const config::DataConfig& config, Split split);

// Opens Parquet files the same way, any number of them for each part. Lists of numbers
// are as many columns as they have items.
Opened open_parquet(const config::DataConfig& config, Split split);

// Opens arrays of numpy, each in the part that its name or its file's says:
// x_train.npy, or x_train in an .npz file. They stay in their files, which are mapped,
// where the types of the values allow it (detail/npy.h).
// Others than input, target and weight are fields by their names.
Opened open_arrays(const config::DataConfig& config, Split split);

// Opens tar shards of images and their classes, mapped: NAME.jpg with NAME.cls, or
// NAME.json. Classes that are no numbers are numbered in the order of their names.
Opened open_webdataset(const config::DataConfig& config, Split split);

// Makes up samples of data.shape, data.dtype and data.classes that cost next to
// nothing.
Opened open_synthetic(const config::DataConfig& config, Split split);

}  // namespace lockstep::data
