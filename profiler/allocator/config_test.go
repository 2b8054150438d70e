package allocator_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
)

// misread are configurations that PyTorch accepts by mistake: it skips any
// token where a colon or comma belongs, and ignores what follows a number.
var misread = map[string]string{
	"max_split_size_mb:128.7":                      "need a whole number",
	"max_split_size_mb:128abc":                     "need a whole number",
	"max_split_size_mb:-1":                         "need a whole number",
	"max_split_size_mb:+25":                        "need a whole number",
	"max_split_size_mb,128":                        "max_split_size_mb has no value; write max_split_size_mb:VALUE",
	"garbage_collection_threshold:0.5x":            "garbage_collection_threshold",
	"roundup_power2_divisions:[256:2]x":            `allocator configuration: roundup_power2_divisions: "x" follows the list; remove it`,
	"max_split_size_mb:128,max_split_size_mb:256a": "need a whole number",
}

// TestConfigIsReadAsPyTorchReadsIt compares with what the library of torch 2.11.0+cu130 made of the same strings.
func TestConfigIsReadAsPyTorchReadsIt(t *testing.T) {
	f, err := os.Open("testdata/config.jsonl")
	require.NoError(t, err)
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		var want struct {
			Conf                string
			OK                  bool
			MaxSplit            uint64 `json:"max_split"`
			MaxNonSplitRounding uint64 `json:"max_non_split_rounding"`
			GC                  float64
			Expandable          bool
			LargeSegment        uint64 `json:"large_segment"`
			Roundup             [16]uint64
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &want))
		got, err := allocator.ParseConfig(want.Conf)
		if why, ok := misread[want.Conf]; ok {
			require.ErrorContains(t, err, why, want.Conf)
			continue
		}
		if !want.OK {
			require.Error(t, err, want.Conf)
			continue
		}
		require.NoError(t, err, want.Conf)
		// PyTorch counts in 64 bits without a sign, we in 63 bits.
		size := func(n uint64) int64 {
			if n > math.MaxInt64 {
				return math.MaxInt64 &^ (1<<20 - 1)
			}
			return int64(n)
		}
		require.Equal(t, want.MaxSplit == math.MaxUint64, got.MaxSplit == allocator.Unlimited, want.Conf)
		if got.MaxSplit != allocator.Unlimited {
			require.Equal(t, size(want.MaxSplit), got.MaxSplit, want.Conf)
		}
		require.Equal(t, size(want.MaxNonSplitRounding), got.MaxNonSplitRounding, want.Conf)
		require.Equal(t, size(want.LargeSegment), got.LargeSegment, want.Conf)
		require.Equal(t, want.GC, got.GarbageCollection, want.Conf)
		require.Equal(t, want.Expandable, got.Expandable, want.Conf)
		require.Equal(t, want.Roundup, got.Roundup, want.Conf)
	}
	require.Equal(t, 139, rows)
}

func TestConfigErrorNamesTheKey(t *testing.T) {
	for conf, want := range map[string]string{
		"max_split_size_mb:19": "max_split_size_mb: 19 is too small: need at least " +
			"20 MiB",
		"max_split_size_mb:30,large_segment_size_mb:40": "max_split_size_mb: 30 is too small: need at least " +
			"40 MiB",
		"large_segment_size_mb:10":         "large_segment_size_mb: 10 is too small: need at least 11 MiB",
		"expandable_segments:true":         `expandable_segments: invalid "true": need True or False`,
		"expandable_segments:True,foo:1":   `the allocator configuration has the unknown key "foo"; remove it`,
		"max_split_size_mb=128":            `the allocator configuration has the unknown key "max_split_size_mb=128"; remove it`,
		"garbage_collection_threshold:1":   `garbage_collection_threshold: invalid "1": need a number above 0`,
		"per_process_memory_fraction:1.5":  `per_process_memory_fraction: invalid "1.5": need a number from 0 to 1`,
		"roundup_power2_divisions:[256:3]": `roundup_power2_divisions: "256:3": need 0 or a power of two as the number of divisions`,
		"roundup_power2_divisions:[256:2":  "roundup_power2_divisions has no closing bracket; add ]",
		"backend:cudaMallocAsync":          "backend: vprof supports only the native allocator, not cudaMallocAsync; leave backend out",
	} {
		_, err := allocator.ParseConfig(conf)
		require.ErrorContains(t, err, want, conf)
	}
}

// A request larger than an address range fails, others get further ranges.
func TestAnAddressRangeEndsARequest(t *testing.T) {
	for conf, largest := range map[string]int64{
		"expandable_segments:True,expandable_segments_reserve:1G":                                52 * 20,
		"expandable_segments:True,expandable_segments_reserve:0.1":                               21 * 20,
		"expandable_segments:True,expandable_segments_reserve:9":                                 4000,
		"expandable_segments:True,expandable_segments_reserve_by_class:[serving:0.1,loading:2G]": 4000,
	} {
		config, err := allocator.ParseConfig(conf)
		require.NoError(t, err)
		heap, err := allocator.New(allocator.NewMemory(4<<30, 0), config)
		require.NoError(t, err)
		b, err := heap.Malloc(largest << 20)
		require.NoError(t, err, conf)
		if largest < 4000 {
			_, err = heap.Malloc(largest<<20 + 1)
			require.ErrorAs(t, err, new(*allocator.OOMError), conf)
			_, err = heap.Malloc(largest << 20)
			require.NoError(t, err, "a second range, %s", conf)
		}
		heap.Free(b)
	}
}

// throw_on_cudamalloc_oom fails before cached memory is released, as PyTorch 2.15 did under vprof run.
func TestARequestIsRejectedEarly(t *testing.T) {
	for conf, retries := range map[string]int64{
		"throw_on_cudamalloc_oom:True":                                 0,
		"throw_on_cudamalloc_oom:False":                                1,
		"throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9": 1,
	} {
		config, err := allocator.ParseConfig(conf)
		require.NoError(t, err)
		heap, err := allocator.New(allocator.NewMemory(4<<30, 150<<20), config)
		require.NoError(t, err)
		b, err := heap.Malloc(1000 << 20)
		require.NoError(t, err)
		_, err = heap.Malloc(1500 << 20)
		require.NoError(t, err)
		heap.Free(b)
		_, err = heap.Malloc(2600 << 20)
		require.ErrorAs(t, err, new(*allocator.OOMError), conf)
		require.Equal(t, retries, heap.Stats().NumAllocRetries, conf)
		require.Equal(t, retries, heap.Stats().NumOOMs, conf)
	}
}

func TestErrorsOfNewerSettingsNameTheKey(t *testing.T) {
	for conf, want := range map[string]string{
		"expandable_segments_reserve:0":                  `invalid "0": need a share of the memory or a size`,
		"expandable_segments_reserve:12X":                `invalid "12X": need a share`,
		"expandable_segments_reserve_by_class:[a:0.5,b]": `invalid "b": need CLASS:SHARE or CLASS:SIZE`,
		"expandable_segments_reserve_by_class:0.5":       `invalid "0.5": need a list`,
		"throw_on_cudamalloc_oom:1":                      `invalid "1": need True or False`,
		"pinned_max_cached_size_mb:-1":                   `invalid "-1": need a whole number`,
	} {
		_, err := allocator.ParseConfig(conf)
		key, _, _ := strings.Cut(conf, ":")
		require.ErrorContains(t, err, key+": "+want, conf)
	}
}

func TestMemoryFractionOfConfig(t *testing.T) {
	config, err := allocator.ParseConfig("per_process_memory_fraction:0.25")
	require.NoError(t, err)
	require.Equal(t, 0.25, config.MemoryFraction)
	// A quarter of 100 MiB holds one segment of 20 MiB, not two of 12.
	heap, err := allocator.New(allocator.NewMemory(100<<20, 0), config)
	require.NoError(t, err)
	_, err = heap.Malloc(12 << 20)
	require.NoError(t, err)
	_, err = heap.Malloc(14 << 20)
	var oom *allocator.OOMError
	require.ErrorAs(t, err, &oom)
	require.Equal(t, int64(25<<20), oom.Limit)
}

func TestNewRejectsWhatCannotWork(t *testing.T) {
	_, err := allocator.New(allocator.NewMemory(1<<30, 0), allocator.Config{})
	require.ErrorContains(t, err, "DefaultConfig")
	config := allocator.DefaultConfig()
	config.Expandable = true
	_, err = allocator.New(struct{ allocator.Source }{}, config)
	require.ErrorContains(t, err, "maps pages")
}

// configText returns a configuration as ParseConfig reads it, without what has its default.
func configText(c allocator.Config) string {
	var set []string
	add := func(key string, value any) { set = append(set, fmt.Sprintf("%s:%v", key, value)) }
	if c.Expandable {
		add("expandable_segments", "True")
	}
	if c.LargeSegment != 20*mib {
		add("large_segment_size_mb", c.LargeSegment/mib)
	}
	if c.MaxSplit != allocator.Unlimited {
		add("max_split_size_mb", c.MaxSplit/mib)
	}
	if c.MaxNonSplitRounding != c.LargeSegment {
		add("max_non_split_rounding_mb", c.MaxNonSplitRounding/mib)
	}
	if c.GarbageCollection != 0 {
		add("garbage_collection_threshold", c.GarbageCollection)
	}
	if c.MemoryFraction != 1 {
		add("per_process_memory_fraction", c.MemoryFraction)
	}
	if c.Roundup != ([16]uint64{}) {
		var list []string
		for i, d := range c.Roundup {
			list = append(list, fmt.Sprintf("%d:%d", 1<<i, d))
		}
		add("roundup_power2_divisions", "["+strings.Join(list, ",")+"]")
	}
	return strings.Join(set, ",")
}

// FuzzParseConfig: no string makes the parser or New fail otherwise than with
// an error, and a configuration written out reads back the same.
func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{
		"", "expandable_segments:True,max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
		"garbage_collection_threshold:0.8,per_process_memory_fraction:0.5", "large_segment_size_mb:40,", "[:],",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		config, err := allocator.ParseConfig(s)
		if err != nil {
			return
		}
		again, err := allocator.ParseConfig(configText(config))
		require.NoError(t, err, configText(config))
		require.Equal(t, config, again)
		heap, err := allocator.New(allocator.NewMemory(1<<30, 0), config)
		require.NoError(t, err)
		b, err := heap.Malloc(3 << 20)
		if err == nil {
			heap.Free(b)
		}
	})
}
