#!/usr/bin/env bash
# Makes a tarball with the programs, recipes and documents, for machines that shall compile
# nothing: unpack it anywhere, run scripts/get_libtorch.sh in it once, and train.
#
#   scripts/bundle.sh                  build/lockstep-VERSION-linux-ARCH.tar.gz
#   scripts/bundle.sh --cuda           of the CUDA flavour
#   scripts/bundle.sh --with-libtorch  with LibTorch in it, for machines without a network
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: scripts/bundle.sh [--cuda] [--with-libtorch] [--from FOLDER] [--to FOLDER]

  --cuda           the CUDA flavour (build-cuda/)
  --with-libtorch  put the libraries of LibTorch that it was built with into the tarball
  --from FOLDER    bundle what was built in this build folder, build nothing
  --to FOLDER      where the tarball goes (default: the build folder)
  --help           show this
USAGE
}

build="$root/build" flavour="" setup=() with_libtorch=no from="" target=""
while (($# > 0)); do
  case "$1" in
    --cuda) build="$root/build-cuda" flavour=-cuda setup=(--cuda) ;;
    --with-libtorch) with_libtorch=yes ;;
    --from) from="${2:?--from needs a folder}" && shift ;;
    --to) target="${2:?--to needs a folder}" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown option '$1'; scripts/bundle.sh --help lists the options" ;;
  esac
  shift
done
if [[ -n "$from" ]]; then
  build="$from"
else
  "$root/scripts/setup.sh" "${setup[@]}"
fi
target="${target:-$build}"
[[ -d "$target" ]] || fail 2 "'$target' is not a folder"

programs=(lockstep lockstep_worker liblockstep_worker.so)
for program in "${programs[@]}"; do
  [[ -f "$build/bin/$program" ]] || fail 3 "$build/bin has no $program; leave --from out to have it built"
done
version="$(sed -n 's/^project(lockstep VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")"
name="lockstep-$version-linux-$(uname -m)$flavour"
work="$(mktemp -d "$target/.bundle.XXXXXX")"
trap 'rm -rf "$work"' EXIT
bundle="$work/$name"

mkdir -p "$bundle/bin" "$bundle/scripts"
for program in "${programs[@]}"; do
  strip -o "$bundle/bin/$program" "$build/bin/$program"
done
# What reads Parquet, with the two libraries of Arrow that it finds beside itself.
if [[ -f "$build/bin/liblockstep_parquet.so" ]]; then
  strip -o "$bundle/bin/liblockstep_parquet.so" "$build/bin/liblockstep_parquet.so"
  mapfile -t arrow < <(ldd "$build/bin/liblockstep_parquet.so" | awk '/libarrow\.so|libparquet\.so/ {print $3}')
  ((${#arrow[@]} == 2)) || fail 3 "Apache Arrow of this build is gone; run scripts/setup.sh"
  cp -t "$bundle/bin" "${arrow[@]}"
  for text in "$(dirname "${arrow[0]}")"/../pyarrow-*.dist-info/licenses/*.txt; do
    [[ ! -f "$text" ]] || cp "$text" "$bundle/bin/arrow-$(basename "$text")"
  done
fi
cp -r "$root/recipes" "$root/docs" "$root/README.md" "$root/CHANGELOG.md" "$root/LICENSE" "$bundle"
cp "$root"/scripts/{common,fetch,get_libtorch,get_gpt2_vocab,get_kjv}.sh "$root/scripts/lockstep.service" "$bundle/scripts"
if [[ "$with_libtorch" == yes ]]; then
  libtorch="$(sed -n 's/^LOCKSTEP_LIBTORCH:[A-Z]*=//p' "$build/CMakeCache.txt")"
  [[ -d "$libtorch/lib" ]] || fail 3 "LibTorch of this build is gone from '$libtorch'; run scripts/setup.sh"
  mkdir -p "$bundle/libtorch"
  cp -r "$libtorch/lib" "$libtorch/version.py" "$bundle/libtorch"
  # The wheel's libraries look for CUDA's in ../../nvidia.
  [[ ! -d "$libtorch/../nvidia" ]] || (cd "$libtorch/.." && find nvidia -name '*.so*' -exec cp --parents -t "$bundle" {} +)
fi
tar -C "$work" -czf "$work/$name.tar.gz" "$name"
mv "$work/$name.tar.gz" "$target"
say "done: $target/$name.tar.gz ($(du -h "$target/$name.tar.gz" | cut -f1))"
echo "$target/$name.tar.gz"
