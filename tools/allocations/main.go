// Command allocations compares vprof's caching allocator with PyTorch's: it runs the same random operations on both and
// compares the statistics after each. PyTorch runs under vprof run. It needs a Python with PyTorch and a build of
// vprof, no GPU.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/allocator"
)

// settings are the values of PYTORCH_CUDA_ALLOC_CONF that are compared.
var settings = []string{
	"",
	"expandable_segments:True",
	"max_split_size_mb:64",
	"roundup_power2_divisions:[1:2,64:4,256:1,>:8]",
	"garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
	"large_segment_size_mb:64",
	"max_split_size_mb:32,max_non_split_rounding_mb:24,per_process_memory_fraction:0.6",
	"expandable_segments:True,max_split_size_mb:32,roundup_power2_divisions:4",
	"garbage_collection_threshold:0.8",
	"expandable_segments:True,garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
	"per_process_memory_fraction:0.3",
	"max_split_size_mb:48,garbage_collection_threshold:0.6,roundup_power2_divisions:8,per_process_memory_fraction:0.7",
	"expandable_segments:True,expandable_segments_reserve:0.2",
	"expandable_segments:True,expandable_segments_reserve:1G",
	"expandable_segments:True,expandable_segments_reserve_by_class:[serving:0.1,loading:2G]",
	"throw_on_cudamalloc_oom:True",
	"throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5",
	"throw_on_cudamalloc_oom:True,expandable_segments:True",
	"pinned_free_catch_all:True,pinned_max_cached_size_mb:16,pinned_max_round_threshold_mb:8",
	"expandable_segments:True,expandable_segments_reserve:0.3,throw_on_cudamalloc_oom:True,large_segment_size_mb:32",
}

// gpu is the simulated GPU, small so that requests often fail.
const gpu = "name: small\nlike: rtx-3060\nmemory: 4GiB\n"

func main() {
	vprof := flag.String("vprof", "./vprof", "the vprof binary")
	python := flag.String("python", "python3", "a Python with PyTorch")
	count := flag.Int("operations", 50_000, "operations of all settings together")
	seed := flag.Int("seed", 1, "seed of the random operations")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	differing, err := compare(ctx, *vprof, *python, *count/len(settings), *seed)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "allocations:", err)
		os.Exit(2)
	case differing > 0:
		os.Exit(1)
	}
}

// compare runs all settings and returns how many of them differ. An error means that nothing was compared.
func compare(ctx context.Context, vprof, python string, count, seed int) (differing int, err error) {
	folder, err := os.MkdirTemp("", "allocations")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	if vprof, err = filepath.Abs(vprof); err != nil {
		return 0, err
	}
	script, err := filepath.Abs("tools/allocations/operations.py")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(folder, "gpu.yaml"), []byte(gpu), 0o600); err != nil {
		return 0, err
	}
	operations, failures := 0, int64(0)
	for i, conf := range settings {
		// Each setting has its own file: under vprof run, existing files are not overwritten.
		file := filepath.Join(folder, fmt.Sprintf("operations-%d.txt", i))
		run := exec.CommandContext(ctx, vprof, "run", "-q", "--gpu-spec", "gpu.yaml", "--",
			python, script, "--seed", strconv.Itoa(seed), "--count", strconv.Itoa(count), file)
		run.Dir, run.Env = folder, append(os.Environ(), "PYTORCH_CUDA_ALLOC_CONF="+conf)
		if out, err := run.CombinedOutput(); err != nil {
			return differing, fmt.Errorf("PyTorch with %q: %w: %s", conf, err, out)
		}
		r, err := replay(file, conf)
		if err != nil {
			return differing, fmt.Errorf("%q: %w", conf, err)
		}
		verdict := "equal"
		if r.difference != "" {
			differing++
			verdict = r.difference
		}
		operations += r.operations
		failures += r.failures
		fmt.Printf("%-110s %5d operations, %3d out of memory: %s\n", conf, r.operations, r.failures, verdict)
	}
	fmt.Printf("%d operations with %d settings, %d out of memory: %d settings differ\n",
		operations, len(settings), failures, differing)
	return differing, nil
}

// result is the comparison of one setting.
type result struct {
	operations int
	failures   int64
	difference string
}

// replay repeats the operations of a file and compares the statistics after each.
func replay(file, conf string) (r result, err error) {
	f, err := os.Open(file)
	if err != nil {
		return r, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var total, taken int64
	if !lines.Scan() {
		return r, errors.New("no operation was recorded")
	}
	if _, err := fmt.Sscan(lines.Text(), &total, &taken); err != nil {
		return r, err
	}
	config, err := allocator.ParseConfig(conf)
	if err != nil {
		return r, err
	}
	heap, err := allocator.New(allocator.NewMemory(total, taken), config)
	if err != nil {
		return r, err
	}
	h := &repeated{heap: heap}
	for lines.Scan() {
		r.operations++
		words := strings.Fields(lines.Text())
		if len(words) < len(h.statistics()) {
			return r, fmt.Errorf("line %d is cut off", r.operations+1)
		}
		at := len(words) - len(h.statistics())
		if err := h.do(words[:at]); err != nil {
			return r, fmt.Errorf("line %d: %w", r.operations+1, err)
		}
		have := strings.Trim(fmt.Sprint(h.statistics()), "[]")
		if want := strings.Join(words[at:], " "); have != want {
			r.difference = fmt.Sprintf("operation %d (%s): PyTorch %s, vprof %s",
				r.operations, strings.Join(words[:at], " "), want, have)
			break
		}
	}
	r.failures = heap.Stats().NumOOMs
	return r, lines.Err()
}

// repeated is vprof's allocator with the state to repeat PyTorch's operations.
type repeated struct {
	heap   *allocator.Allocator
	stream allocator.Stream
	blocks []*allocator.Block
}

func (h *repeated) do(words []string) error {
	arguments := make([]int64, len(words)-1)
	for i, word := range words[1:] {
		var err error
		if arguments[i], err = strconv.ParseInt(word, 10, 64); err != nil {
			return err
		}
	}
	stream := func(n int64) allocator.Stream { return allocator.Stream(n << 16) }
	switch words[0] {
	case "m":
		h.heap.CompleteEvents() // a query by PyTorch finds every event of the simulated GPU complete
		b, err := h.heap.MallocOn(h.stream, arguments[0])
		h.blocks = append(h.blocks, b)
		if err != nil && !errors.As(err, new(*allocator.OOMError)) {
			return err
		}
	case "f":
		h.heap.Free(h.blocks[arguments[0]])
	case "r":
		h.heap.RecordStream(h.blocks[arguments[0]], stream(arguments[1]))
	case "s":
		h.stream = stream(arguments[0])
	case "e":
		return h.heap.EmptyCache()
	default:
		return fmt.Errorf("%q is no operation", words[0])
	}
	return nil
}

// statistics returns the values of STATISTICS in operations.py.
func (h *repeated) statistics() []int64 {
	s := h.heap.Stats()
	all := func(p allocator.PoolStat) int64 { return p[allocator.AllPools].Current }
	return []int64{
		all(s.AllocatedBytes), all(s.ReservedBytes), all(s.ActiveBytes), all(s.InactiveSplitBytes),
		all(s.RequestedBytes), all(s.Segment), s.NumAllocRetries, s.NumOOMs,
	}
}
