/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One hinting fault, or a process that is born, as it crosses the ring buffer: host byte order, no padding.
 * src/event.rs reads the same layout; change both or neither.
 */
#ifndef NUMAHERD_FAULTS_H
#define NUMAHERD_FAULTS_H

struct numaherd_fault {
	__u64 time_ns;     /* CLOCK_MONOTONIC, to the tick */
	__u64 address;     /* 0 when not known */
	__u32 tid;
	__u32 tgid;
	__u32 cpu;
	__s32 mem_node;
	__u32 pages;       /* base pages: 512 for a 2 MiB page */
	__u32 flags;       /* TNF_* of the kernel's sched/numa_balancing.h */
	__s32 last_cpupid; /* as the kernel packs it; -1 when not known */
	__u32 is_birth;    /* 1 where it is no fault: process tid was born of process tgid then */
};

#endif
