// The bench's guest: runs as init of a machine with 2 nodes and measures what the plugin makes
// of it, in guest time. Prints "name value" lines; run.sh compares them with what is expected.
// Needs nothing but the kernel: statically linked, no /proc.
//
// Arguments on the kernel's command line after "--": "all", "speed" or "boot".
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MARKER(op, arg)                                                                            \
	__asm__ volatile(".byte 0x0f,0x1f,0x84,0x00\n\t.long %c0" ::"i"(                           \
				 0x4e480000 | (op) << 8 | (arg))                                   \
			 : "memory")
#define CHARGING_ON() MARKER(1, 0)
#define CHARGING_OFF() MARKER(2, 0)
#define SNAPSHOT(tag) MARKER(3, tag)
#define MAP_BEGIN() MARKER(4, 0)
#define MAP_NEXT() MARKER(5, 0)
#define MAP_END() MARKER(6, 0)

#define LINE 64
#define MIB (1ul << 20)
#define STREAM_ROUNDS 8
#define CPUS 8
#define CPUS_PER_NODE 4

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		perror("sched_setaffinity");
}

static char *memory_on(int node, size_t bytes)
{
	unsigned long mask = 1ul << node;
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, bytes, MADV_NOHUGEPAGE);
	if (syscall(SYS_mbind, p, bytes, 2 /* MPOL_BIND */, &mask, 65ul, 0))
		perror("mbind");
	for (size_t i = 0; i < bytes; i += 4096)
		p[i] = 1;
	return p;
}

static void read_lines(volatile char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE)
		(void)p[i];
}

static void learn_nodes(void)
{
	char *a = memory_on(0, 8 * MIB), *b = memory_on(1, 8 * MIB);
	MAP_BEGIN();
	read_lines(a, 8 * MIB);
	MAP_NEXT();
	read_lines(b, 8 * MIB);
	MAP_END();
	munmap(a, 8 * MIB);
	munmap(b, 8 * MIB);
}

// Nanoseconds per step of a chain of dependent loads through all lines in random order.
static double chase(int node, size_t bytes, long steps)
{
	size_t lines = bytes / LINE;
	char *p = memory_on(node, bytes);
	uint32_t *order = malloc(lines * sizeof *order);
	uint64_t seed = 42;
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i > 0; i--) { // Sattolo's shuffle: one cycle
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		size_t j = (seed >> 33) % i;
		uint32_t t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	for (size_t i = 0; i < lines; i++)
		*(char **)(p + (size_t)order[i] * LINE) = p + (size_t)order[(i + 1) % lines] * LINE;
	free(order);
	char *at = p;
	double start = now();
	long n = steps;
	__asm__ volatile("1: mov (%0),%0\n\tdec %1\n\tjnz 1b" : "+r"(at), "+r"(n)::"memory", "cc");
	double ns = (now() - start) * 1e9 / steps;
	munmap(p, bytes);
	return ns;
}

// Seconds for a loop of `count` rounds of two instructions.
static double spin(long count)
{
	double start = now();
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(count)::"cc");
	return now() - start;
}

struct work {
	int cpu;
	char *data;
	size_t bytes;
	int rounds;
};
static pthread_barrier_t barrier;

static void *stream(void *argument)
{
	struct work *w = argument;
	pin(w->cpu);
	pthread_barrier_wait(&barrier);
	for (int round = 0; round < w->rounds; round++) {
		char *p = w->data;
		size_t n = w->bytes / 8;
		__asm__ volatile("1: mov %1,(%0)\n\tadd $8,%0\n\tdec %1\n\tjnz 1b"
				 : "+r"(p), "+r"(n)::"memory", "cc");
	}
	pthread_barrier_wait(&barrier);
	return NULL;
}

// Seconds of `rounds` rounds of all CPUs storing through 64 MiB a node; `flip` 1: the other
// node's memory.
static double stream_all(int flip, int rounds)
{
	static char *memory[2];
	pthread_t threads[CPUS];
	struct work work[CPUS];
	for (int node = 0; node < 2; node++)
		if (!memory[node])
			memory[node] = memory_on(node, 64 * MIB);
	pthread_barrier_init(&barrier, NULL, CPUS + 1);
	for (int cpu = 0; cpu < CPUS; cpu++) {
		size_t slice = 64 * MIB / CPUS_PER_NODE;
		work[cpu] = (struct work){ cpu, memory[cpu / CPUS_PER_NODE ^ flip] + cpu % CPUS_PER_NODE * slice,
					   slice, rounds };
		pthread_create(&threads[cpu], NULL, stream, &work[cpu]);
	}
	pthread_barrier_wait(&barrier);
	double start = now();
	pthread_barrier_wait(&barrier);
	double seconds = now() - start;
	for (int cpu = 0; cpu < CPUS; cpu++)
		pthread_join(threads[cpu], NULL);
	return seconds;
}

static int on_node(char *page)
{
	int status = -1;
	syscall(SYS_move_pages, 0, 1ul, &page, NULL, &status, 0);
	return status;
}

static void migrate(void)
{
	// By counters, because what takes less than a quantum cannot be timed. The lines are in
	// the cache of CPU 0; CPU 4 moves them, so that the copy is in that one's cache.
	size_t bytes = 32768;
	char *block = memory_on(0, bytes);
	read_lines(block, bytes);
	SNAPSHOT(10);
	read_lines(block, bytes); // hits
	SNAPSHOT(11);
	pin(4);
	for (char *page = block; page < block + bytes; page += 4096) {
		int to = 1, status = -1;
		syscall(SYS_move_pages, 0, 1ul, &page, &to, &status, 2 /* MPOL_MF_MOVE */);
	}
	pin(0);
	printf("moved_to_node %d\n", on_node(block));
	SNAPSHOT(12);
	read_lines(block, bytes); // 512 misses, served by node 1
	SNAPSHOT(13);
	read_lines(block, bytes); // hits
	SNAPSHOT(14);

	// Cost of moving 4 MiB, as the kernel does it, copying charged.
	enum { PAGES = 1024 };
	static void *pages[PAGES];
	static int nodes[PAGES], result[PAGES];
	block = memory_on(0, PAGES * 4096ul);
	for (int i = 0; i < PAGES; i++) {
		pages[i] = block + i * 4096ul;
		nodes[i] = 1;
	}
	double start = now();
	syscall(SYS_move_pages, 0, (long)PAGES, pages, nodes, result, 2);
	printf("move_page_us %.1f\n", (now() - start) * 1e6 / PAGES);
}

static volatile int stop;

static void *toucher(void *argument)
{
	struct work *w = argument;
	pin(w->cpu);
	while (!stop)
		read_lines(w->data, w->bytes);
	return NULL;
}

// Moving pages that 7 other busy CPUs use: each move interrupts all of them.
static void shootdowns(void)
{
	enum { PAGES = 256 };
	static void *pages[PAGES];
	static int nodes[PAGES], result[PAGES];
	char *block = memory_on(0, PAGES * 4096ul);
	pthread_t threads[CPUS];
	struct work work[CPUS];
	for (int cpu = 1; cpu < CPUS; cpu++) {
		work[cpu] = (struct work){ cpu, block, PAGES * 4096ul, 0 };
		pthread_create(&threads[cpu], NULL, toucher, &work[cpu]);
	}
	usleep(100000);
	double start = now();
	for (int i = 0; i < PAGES; i++) {
		pages[0] = block + i * 4096ul;
		nodes[0] = 1;
		syscall(SYS_move_pages, 0, 1l, pages, nodes, result, 2);
	}
	printf("move_shared_page_us %.1f\n", (now() - start) * 1e6 / PAGES);
	stop = 1;
	for (int cpu = 1; cpu < CPUS; cpu++)
		pthread_join(threads[cpu], NULL);
}

static void all(void)
{
	CHARGING_ON();
	SNAPSHOT(1);
	double start = now();
	sleep(2);
	SNAPSHOT(2);
	printf("sleep_s %.4f\n", now() - start);
	// CPU 0 was idle for 2 s: with credit this would take no time.
	printf("spin_s %.4f\n", spin(50000000));
	printf("chase_local_ns %.1f\n", chase(0, 8 * MIB, 1000000));
	printf("chase_remote_ns %.1f\n", chase(1, 8 * MIB, 1000000));
	printf("chase_cached_ns %.1f\n", chase(1, 32768, 1000000));
	migrate();
	fflush(stdout);
	stream_all(0, 1);
	SNAPSHOT(3);
	double bound = stream_all(0, STREAM_ROUNDS);
	SNAPSHOT(4);
	double inverse = stream_all(1, STREAM_ROUNDS);
	SNAPSHOT(5);
	double lines = STREAM_ROUNDS * 16 * MIB / LINE;
	printf("bound_line_ns %.1f\ninverse_line_ns %.1f\n", bound * 1e9 / lines, inverse * 1e9 / lines);
	printf("bound_s %.4f\ninverse_s %.4f\nratio %.4f\n", bound, inverse, inverse / bound);
	fflush(stdout);
	shootdowns();
	SNAPSHOT(6);
	CHARGING_OFF();
}

static void speed(void)
{
	CHARGING_ON();
	stream_all(0, 1); // first touch
	SNAPSHOT(1);
	stream_all(0, 40);
	SNAPSHOT(2);
	CHARGING_OFF();
	SNAPSHOT(3);
	stream_all(0, 40);
	SNAPSHOT(4);
}

int main(int argc, char **argv)
{
	// The kernel hands us words of its own that it does not know, too: ours is the last.
	const char *what = argc > 1 ? argv[argc - 1] : "all";
	setvbuf(stdout, NULL, _IOLBF, 0);
	pin(0);
	printf("up_s %.2f\n", now());
	if (strcmp(what, "boot")) {
		learn_nodes();
		strcmp(what, "speed") ? all() : speed();
	}
	printf("done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 0;
}
