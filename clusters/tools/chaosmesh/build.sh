#!/bin/sh
# Builds what the tests with Chaos Mesh need into a folder: its controller-manager,
# its daemon, and a Debian root with the programs that the daemon runs. Where
# there is no C compiler, no debootstrap or no right to use it, only the first.
#
#   clusters/tools/chaosmesh/build.sh FOLDER
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
module=github.com/chaos-mesh/chaos-mesh

CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/chaos-controller-manager" $module/cmd/chaos-controller-manager

lack() {
	echo "$1: Chaos Mesh's daemon is not built, and tests that need it are skipped" >&2
	exit 0
}
command -v cc >/dev/null || lack "no C compiler"
command -v debootstrap >/dev/null || lack "no debootstrap"
[ "$(id -u)" = 0 ] || lack "not root, as debootstrap has to be"

# The daemon embeds two object files that its repository builds from C and that
# no module carries, so it is built from a copy that has them.
source=$out/chaos-mesh-source
if [ ! -e "$source/go.mod" ]; then
	rm -rf "$source"
	cp -R "$(go list -m -f '{{.Dir}}' $module)" "$source.new"
	chmod -R u+w "$source.new"
	for name in fake_clock_gettime fake_gettimeofday; do
		cc -c -O2 -fPIE "$source.new/pkg/time/fakeclock/$name.c" -o "$source.new/pkg/time/fakeclock/$name.o"
	done
	mv "$source.new" "$source"
fi
cp go.sum "$out/chaos-mesh.sum"
cp go.mod "$out/chaos-mesh.mod"
go mod edit -replace "$module=$source" "$out/chaos-mesh.mod"
CGO_ENABLED=1 go build -modfile "$out/chaos-mesh.mod" -trimpath -tags netgo,osusergo \
	-ldflags '-s -w -extldflags=-static' -o "$out/chaos-daemon" $module/cmd/chaos-daemon

if [ ! -e "$out/chaos-daemon-root.tar" ]; then
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	debootstrap --variant=minbase --include=iptables,ipset,iproute2,util-linux,procps,stress-ng bookworm "$root" >"$out/debootstrap.log"
	tar -C "$root" --exclude=./var/cache --exclude=./var/lib/apt --exclude=./usr/share/doc --exclude=./usr/share/man \
		--exclude=./usr/share/locale --exclude=./dev -cf "$out/chaos-daemon-root.tar.new" .
	mv "$out/chaos-daemon-root.tar.new" "$out/chaos-daemon-root.tar"
fi
