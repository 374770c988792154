#!/bin/sh
# Boots a kernel with 2 nodes x 4 CPUs under QEMU and the plugin, and prints what the guest
# measured and what the plugin counted.
#
#   KERNEL=vmlinuz PLUGIN=libnumaherd_latency.so bench/run.sh all|speed|boot
#
# RATIO (0.25) is guest seconds per real second, QUANTUM_NS (50000) and INSTRUCTION_PS (10000;
# 10 for speed, so that nothing sleeps) go to the plugin. PLUGIN=none boots without it.
# MODEL is further fields of the plugin's configuration (src/config.rs), without braces.
# Needs qemu-system-x86, faketime, gcc, busybox.
set -eu
what=${1:-all}
here=$(cd "$(dirname "$0")" && pwd)
: "${KERNEL:?a kernel image}" "${PLUGIN:?the plugin or none}"
RATIO=${RATIO:-0.25}
QUANTUM_NS=${QUANTUM_NS:-50000}
if [ "$what" = speed ]; then INSTRUCTION_PS=${INSTRUCTION_PS:-10} LOCAL=0 REMOTE=0; fi
: "${INSTRUCTION_PS:=10000}" "${LOCAL:=100}" "${REMOTE:=300}"
QEMU=${QEMU:-qemu-system-x86_64}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/root"
gcc -O2 -static -pthread -o "$folder/root/init" "$here/guest.c"
mkdir "$folder/root/dev"
mknod "$folder/root/dev/console" c 5 1 2>/dev/null || true
(cd "$folder/root" && find . | busybox cpio -o -H newc --quiet) >"$folder/initrd"

cat >"$folder/config.json" <<EOF
{"stats": "$folder/stats", "clock_hz_ratio": $RATIO, "quantum_ns": $QUANTUM_NS,
 "instruction_ps": $INSTRUCTION_PS, "line_bytes": 64, "cache_bytes": 65536, "cache_ways": 4,
 "cpu_node": [0, 0, 0, 0, 1, 1, 1, 1], "node_bytes": [2147483648, 2147483648],
 "below_4g_bytes": 3221225472, "latency_ns": [[$LOCAL, $REMOTE], [$REMOTE, $LOCAL]]${MODEL:+, $MODEL}}
EOF
plugin="-plugin file=$PLUGIN,config=$folder/config.json"
[ "$PLUGIN" = none ] && plugin=
faketime=
for lib in /usr/lib/*/faketime/libfaketimeMT.so.1; do faketime=$lib; done
[ "$RATIO" = 1 ] && faketime=

start=$(date +%s.%N)
# shellcheck disable=SC2086 # $plugin is two words
FAKETIME="+0 x$RATIO" LD_PRELOAD=$faketime "$QEMU" -accel tcg,thread=multi \
	-smp 8,sockets=2,cores=4 -m 4G -nodefaults -nographic -no-reboot -serial stdio \
	-object memory-backend-ram,id=m0,size=2G -object memory-backend-ram,id=m1,size=2G \
	-numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 \
	-numa dist,src=0,dst=1,val=21 -kernel "$KERNEL" -initrd "$folder/initrd" $plugin \
	-append "console=ttyS0 nokaslr mitigations=off quiet ${APPEND:-} -- $what" </dev/null
echo "real_s $(date +%s.%N | awk -v start="$start" '{ printf "%.1f", $1 - start }')"
[ "$PLUGIN" = none ] && exit

# The stats file's words (src/layout.rs): 8 CPUs, 2 nodes, so blocks of 14 and snapshots of 114.
od -v -A n -t u8 -w8 "$folder/stats" | awk -v ratio="$RATIO" '
	{ w[NR - 1] = $1 }
	END {
		printf "map_state %d layout %d strays %d snapshots %d\n", w[7], w[8], w[9], w[5]
		for (s = 0; s < w[5]; s++) {
			at = 128 + s * 114
			seconds = (w[at + 1] - before_ns) / 1e9
			for (k = 0; k < 14; k++) {
				sum[k] = 0
				for (c = 0; c < 8; c++) sum[k] += w[at + 2 + c * 14 + k]
			}
			if (s) printf "snapshot %d-%d: %.4f guest s, %.0f M instructions (%.0f M/s real), %.0f M accesses, %d misses (node 0: %d, node 1: %d), late %.4f, slept %.4f, idle %.4f, lag %.4f s; late share %.4f\n",
				tag, w[at], seconds, (sum[0] - b[0]) / 1e6, (sum[0] - b[0]) / 1e6 / seconds * ratio,
				(sum[1] - b[1]) / 1e6, sum[2] - b[2], sum[12] - b[12], sum[13] - b[13],
				(sum[3] - b[3]) / 1e9, (sum[4] - b[4]) / 1e9, (sum[5] - b[5]) / 1e9, sum[6] / 1e9,
				(sum[3] - b[3] + sum[6] - b[6]) / 1e9 / (8 * seconds)
			for (k = 0; k < 14; k++) b[k] = sum[k]
			before_ns = w[at + 1]; tag = w[at]
		}
	}'
