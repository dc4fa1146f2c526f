#!/usr/bin/env bash
# Puts a text to learn from into a folder: the King James Bible (1769, public domain), as
# the package bible-kjv-text has it. A verse a line, a heading before each chapter.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: scripts/get_kjv.sh [FOLDER]

  FOLDER  gets train.txt (4.1 MB) and val.txt (four books that are not in it);
          default: data/kjv
  --help  show this
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  -*) fail 2 "unknown option '$1'; scripts/get_kjv.sh --help lists the options" ;;
esac
folder="${1:-data/kjv}"
if [[ -s "$folder/train.txt" && -s "$folder/val.txt" ]]; then
  say "nothing to do, $folder has the texts"
  exit 0
fi
mkdir -p "$folder"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Out of the packages: nothing is installed, so anybody may run this.
say "fetching the packages bible-kjv and bible-kjv-text (2.5 MB)"
(cd "$work" && apt-get -q download bible-kjv bible-kjv-text >&2) ||
  fail 3 "apt-get could not fetch them: its message is above; run apt-get update as root and try again"
for package in "$work"/*.deb; do dpkg -x "$package" "$work/x"; done

# read_books RANGE...: the text, without the numbers of the verses.
read_books() {
  "$work/x/usr/bin/bible" -p "$work/x/usr/lib/" -l100000 "$@" | sed -E 's/^ +[0-9]+ //'
}

# Whole books are held back, so that no sentence of them was seen.
read_books Ruth1:1-4:22 Ezra1:1-10:44 Mark1:1-16:20 James1:1-5:20 >"$work/val.txt"
read_books Gen1:1-Judges21:25 1Sam1:1-2Chron36:23 Neh1:1-Matt28:20 Luke1:1-Heb13:25 1Peter1:1-Rev22:21 \
  >"$work/train.txt"
for part in train val; do
  [[ "$(wc -c <"$work/$part.txt")" -gt 100000 ]] ||
    fail 3 "the text for $part.txt is too short: the package has changed; report it"
  mv "$work/$part.txt" "$folder/$part.txt"
done
say "done: $folder/train.txt ($(wc -c <"$folder/train.txt") bytes) and $folder/val.txt ($(wc -c <"$folder/val.txt") bytes)"
