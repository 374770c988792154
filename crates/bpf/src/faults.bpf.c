// SPDX-License-Identifier: GPL-2.0-only
/*
 * Forwards the kernel's NUMA hinting faults to user space, one event a fault.
 *
 * For each fault on an armed page the kernel calls, in the faulting task:
 *
 *	mpol_misplaced(page or folio, vma or vm_fault, address)   where should the page be?
 *	task_numa_fault(last_cpupid, mem_node, pages, flags)      account for the fault
 *
 * (v6.1 and v6.12; the first two arguments of mpol_misplaced changed between them, the third
 * did not.) Only the first has the address, only the second the result, so the address waits in
 * the task's storage in between. Arguments are taken as plain 64-bit words: no kernel structure
 * is read, so that loading needs neither vmlinux.h nor relocations.
 *
 * And it counts those that end, so that user space need not look at each to know, and tells of processes
 * that are born: whose parent has ended by the time somebody looks is nobody's child in /proc. For that it
 * reads two numbers of the child's task_struct, whose places user space found in the kernel's BTF.
 *
 * This file counts and forwards. Decisions are made in user space.
 */

/* The few words of <linux/types.h> and <linux/bpf.h> used here, so that clang is all it needs. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#include <bpf/bpf_helpers.h>
#include "faults.h"

char LICENSE[] SEC("license") = "GPL";

struct task_struct;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set anew before loading */
} events SEC(".maps");

/* Thread groups to report; used only while control.filter is set. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} watched SEC(".maps");

/* The address between the two calls, 0 when there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} pending SEC(".maps");

/* Slot 0: 1 while only watched thread groups are wanted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} filter SEC(".maps");

/* Slot 0: while of the faults on base pages those on one page in eight are enough, by how much to shift an
 * address for the page's number; else 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sampled SEC(".maps");

/* Slot 0: events dropped because the ring was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Slot 0: how many tasks have ended that had faulted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} exited SEC(".maps");

/* Slot 0: where a task_struct has its thread's and its process's id. */
struct places {
	__u32 pid;
	__u32 tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct places);
} places SEC(".maps");

/*
 * Processes born of watched ones, or of others that were: user space learns of these when it looks, and some
 * have children and end before that. Set anew before loading: a CPU that starts processes takes room for 128.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} descendants SEC(".maps");

/* Slot 0: how many tasks were born of watched processes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} born SEC(".maps");

/* Slot 0: when this CPU looked at the clock last. */
struct look {
	__u64 jiffies;
	__u64 time_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look);
} looked SEC(".maps");

/*
 * The time, to the tick: looking at a slow clock, like an HPET, costs more than all the rest, so that is
 * done once a tick. (The kernel's own coarse clock is forbidden here since 5.16.)
 */
static __always_inline __u64 about_now(void)
{
	__u32 slot = 0;
	struct look *look = bpf_map_lookup_elem(&looked, &slot);
	__u64 jiffies = bpf_jiffies64();

	if (!look)
		return bpf_ktime_get_ns();
	if (look->jiffies != jiffies) {
		look->time_ns = bpf_ktime_get_ns();
		look->jiffies = jiffies;
	}
	return look->time_ns;
}

static __always_inline int wanted(__u32 tgid)
{
	__u32 slot = 0;
	__u32 *on = bpf_map_lookup_elem(&filter, &slot);

	return !on || !*on || bpf_map_lookup_elem(&watched, &tgid);
}

/* A huge page's fault is told with the address at which that begins. */
#define HUGE_BYTES (2ULL << 20)
/* 2^64 ÷ the golden ratio: its multiples are spread evenly (Knuth). */
#define GOLDEN 0x9e3779b97f4a7c15ULL

/*
 * Whether the page is not the one that is sampled of its eight. That is always the same, so that whoever
 * touches it after another is seen; and another one in each eight, lest a stride miss them all.
 */
static __always_inline int passed_over(__u64 address)
{
	__u32 slot = 0;
	__u32 *shift = bpf_map_lookup_elem(&sampled, &slot);
	__u64 page;

	if (!shift || !*shift)
		return 0;
	page = address >> (*shift & 63);
	return !address || (page & 7) != ((page >> 3) * GOLDEN) >> 61;
}

/*
 * Slot 0: whether a fault on several pages came whose address had been passed over. Where folios are of more than
 * one page and less than a huge one, that is known only after the address (6.10 and later).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} large_folios SEC(".maps");

static __always_inline int has_large_folios(void)
{
	__u32 slot = 0;
	__u32 *seen = bpf_map_lookup_elem(&large_folios, &slot);

	return seen && *seen;
}

SEC("fentry/mpol_misplaced")
int remember_address(__u64 *ctx)
{
	__u64 *address;

	/* To keep one takes longer than all the rest: not those of whom most likely nothing is told. */
	if (ctx[2] % HUGE_BYTES && passed_over(ctx[2]) && !has_large_folios())
		return 0;
	if (!wanted(bpf_get_current_pid_tgid() >> 32))
		return 0;
	address = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), 0,
				       BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (address)
		*address = ctx[2];
	return 0;
}

static __always_inline void add_one(void *counter)
{
	__u32 slot = 0;
	__u64 *count = bpf_map_lookup_elem(counter, &slot);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline int forward(__u64 *ctx, __u64 address, __u64 pid_tgid)
{
	struct numaherd_fault *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		add_one(&lost);
		return 0;
	}
	event->time_ns = about_now();
	event->address = address;
	event->tid = pid_tgid;
	event->tgid = pid_tgid >> 32;
	event->cpu = bpf_get_smp_processor_id();
	event->last_cpupid = ctx[0];
	event->mem_node = ctx[1];
	event->pages = ctx[2];
	event->flags = ctx[3];
	event->is_birth = 0;
	/* The reader comes by on its own clock; waking it for each fault would cost more. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("fentry/task_numa_fault")
int forward_with_address(__u64 *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u64 *kept, address = 0;
	/* An int: before 6.6 x86 leaves whatever was there in the upper half of its slot. */
	int pages = (int)ctx[2];

	if (!wanted(pid_tgid >> 32))
		return 0;
	kept = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), 0, 0);
	if (kept) {
		address = *kept;
		*kept = 0;
	}
	if (pages == 1 && passed_over(address))
		return 0;
	if (pages > 1 && !address) {
		__u32 slot = 0, *seen = bpf_map_lookup_elem(&large_folios, &slot);

		if (seen)
			*seen = 1;
	}
	return forward(ctx, address, pid_tgid);
}

/*
 * Each task that ends, in that task. One without storage has not faulted: it used little memory, or ended
 * before the kernel scanned it.
 */
SEC("fentry/exit_signals")
int count_exits(__u64 *ctx)
{
	if (!wanted(bpf_get_current_pid_tgid() >> 32))
		return 0;
	if (bpf_task_storage_get(&pending, bpf_get_current_task_btf(), 0, 0))
		add_one(&exited);
	return 0;
}

/*
 * wake_up_new_task(child): each task that is born, in its parent. A process of a stranger's may get the pid of one that
 * was a descendant.
 */
SEC("fentry/wake_up_new_task")
int see_births(__u64 *ctx)
{
	__u32 slot = 0, parent = bpf_get_current_pid_tgid() >> 32, pid = 0, tgid = 0;
	struct places *at = bpf_map_lookup_elem(&places, &slot);
	struct numaherd_fault *event;
	__u32 *on = bpf_map_lookup_elem(&filter, &slot);
	int watched_one = bpf_map_lookup_elem(&watched, &parent) != 0;
	__u8 yes = 1;

	/* While all are wanted it is not known who is looked after. */
	if (!on || !*on || !at || bpf_probe_read_kernel(&pid, sizeof(pid), (void *)(ctx[0] + at->pid)) ||
	    bpf_probe_read_kernel(&tgid, sizeof(tgid), (void *)(ctx[0] + at->tgid)))
		return 0;
	if (watched_one)
		add_one(&born);
	if (pid != tgid)
		return 0;
	if (!watched_one && !bpf_map_lookup_elem(&descendants, &parent)) {
		bpf_map_delete_elem(&descendants, &tgid);
		return 0;
	}
	bpf_map_update_elem(&descendants, &tgid, &yes, 0);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = about_now();
	event->tid = tgid;
	event->tgid = parent;
	event->is_birth = 1;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* For kernels whose mpol_misplaced cannot be attached to: no task storage is needed then. */
SEC("fentry/task_numa_fault")
int forward_without_address(__u64 *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	return wanted(pid_tgid >> 32) ? forward(ctx, 0, pid_tgid) : 0;
}
