package allocator

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Config holds the settings of PYTORCH_CUDA_ALLOC_CONF that affect device memory; see [DefaultConfig].
type Config struct {
	// MaxSplit is the size from which on blocks are not split (max_split_size_mb); [Unlimited] by default.
	MaxSplit int64
	// MaxNonSplitRounding is the number of bytes by which a block of at least MaxSplit bytes may exceed the request
	// (max_non_split_rounding_mb); LargeSegment by default.
	MaxNonSplitRounding int64
	// LargeSegment is the segment size for requests above 1 MiB and below 10 MiB, and the page size of the large pool's
	// expandable segments (large_segment_size_mb); 20 MiB by default.
	LargeSegment int64
	// GarbageCollection is the share of the allowed memory above which cached segments are released before new ones are
	// allocated (garbage_collection_threshold); zero is off. It needs a MemoryFraction below one.
	GarbageCollection float64
	// MemoryFraction is the share of the device's memory that may be reserved (per_process_memory_fraction, or
	// set_per_process_memory_fraction); one is no limit.
	MemoryFraction float64
	// Roundup is the number of divisions between two powers of two to which sizes are rounded up
	// (roundup_power2_divisions), one entry for each power from 1 MiB to 32 GiB; zero and one are off.
	Roundup [16]uint64
	// Expandable turns expandable segments on (expandable_segments).
	Expandable bool
	// ExpandableRange is the size of the address range of an expandable segment (expandable_segments_reserve), at most
	// 9/8 of the device, which is also the default. A pool with more blocks than fit into it reserves further ranges.
	ExpandableRange SizeOrShare
	// ChecksLimitFirst reports whether a segment raises an error at once if more than the device's total memory would
	// be reserved (throw_on_cudamalloc_oom). Cached memory is then not released, and the failure is not counted. A
	// MemoryFraction below one is checked earlier, so the setting has no effect with one.
	ChecksLimitFirst bool
	// OrdersByAddress reports whether the allocator takes the block with the lowest address among free blocks of equal
	// size, as PyTorch before 2.12 does. Later releases take the first block of the oldest segment. Both choose the
	// same block unless newer segments have lower addresses, as with drivers on Linux.
	OrdersByAddress bool
}

// SizeOrShare is a number of bytes, or a share of the device's memory. The zero value is unset.
type SizeOrShare struct {
	Bytes int64
	Share float64
}

// Unlimited is the MaxSplit that lets every block be split.
const Unlimited int64 = math.MaxInt64

// defaultLargeSegment is kLargeBuffer in PyTorch before 2.11, and the default of later releases.
const defaultLargeSegment = 20 * mib

// DefaultConfig returns the configuration of an empty PYTORCH_CUDA_ALLOC_CONF.
func DefaultConfig() Config {
	return Config{
		MaxSplit:            Unlimited,
		MaxNonSplitRounding: defaultLargeSegment,
		LargeSegment:        defaultLargeSegment,
		MemoryFraction:      1,
	}
}

// ParseConfig parses the value of PYTORCH_CUDA_ALLOC_CONF by the rules of the newest release, see [Rules.Parse].
func ParseConfig(s string) (Config, error) { return Rules{}.Parse(s) }

// Parse parses the value of PYTORCH_CUDA_ALLOC_CONF (or PYTORCH_ALLOC_CONF): key:value pairs separated by commas,
// ignoring spaces.
//
// It rejects what PyTorch rejects, and also what PyTorch silently misreads: a missing colon, or a number followed by
// other text. Settings without an effect on device memory are checked and dropped. The error names the key.
func (r Rules) Parse(s string) (Config, error) {
	settings, err := r.splitSettings(s)
	if err != nil {
		return Config{}, err
	}
	c := DefaultConfig()
	c.OrdersByAddress = r.OrdersByAddress
	// large_segment_size_mb is parsed first wherever it is, since it is the lower limit of other settings.
	for _, pass := range []bool{true, false} {
		for _, set := range settings {
			if (set.key == "large_segment_size_mb") != pass {
				continue
			}
			if err := parsers[set.key](&c, set.value); err != nil {
				return Config{}, fmt.Errorf("allocator configuration: %s: %w", set.key, err)
			}
			if set.key == "max_split_size_mb" && r.MaxSplitAbove && c.MaxSplit <= c.LargeSegment {
				return Config{}, fmt.Errorf("allocator configuration: %s: need more than %d", set.key,
					c.LargeSegment/mib)
			}
		}
		if pass {
			c.MaxNonSplitRounding = c.LargeSegment
		}
	}
	return c, nil
}

// configSetting is a key with the text of its value. A list keeps its brackets.
type configSetting struct{ key, value string }

// splitSettings splits a configuration into settings. Commas inside brackets belong to the value. A comma may end it.
func (r Rules) splitSettings(s string) ([]configSetting, error) {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	var settings []configSetting
	for s != "" {
		key, rest, _ := strings.Cut(s, ",")
		key, _, colon := strings.Cut(key, ":")
		if !r.isKnown(key) {
			return nil, fmt.Errorf("the allocator configuration has the unknown key %q; remove it", key)
		}
		if !colon {
			return nil, fmt.Errorf("allocator configuration: %s has no value; write %s:VALUE", key, key)
		}
		value := s[len(key)+1:]
		if strings.HasPrefix(value, "[") {
			end := strings.IndexByte(value, ']')
			if end < 0 {
				return nil, fmt.Errorf("allocator configuration: the list of %s has no closing bracket; add ]", key)
			}
			value, rest = value[:end+1], value[end+1:]
			if rest != "" && rest[0] != ',' {
				return nil, fmt.Errorf("allocator configuration: %s: %q follows the list; remove it", key, rest)
			}
			rest = strings.TrimPrefix(rest, ",")
		} else {
			value, _, _ = strings.Cut(value, ",")
		}
		settings = append(settings, configSetting{key, value})
		s = rest
	}
	return settings, nil
}

// parsers has a function for every key that a release of PyTorch accepts. The values of keys that affect no device
// memory are only checked.
var parsers = map[string]func(c *Config, value string) error{
	"expandable_segments": setField(parseBool, func(c *Config) *bool { return &c.Expandable }),
	"large_segment_size_mb": func(c *Config, v string) (err error) {
		c.LargeSegment, err = parseMiB(v, minLargeAlloc/mib+1)
		return err
	},
	"max_split_size_mb": func(c *Config, v string) (err error) {
		c.MaxSplit, err = parseMiB(v, c.LargeSegment/mib)
		return err
	},
	"max_non_split_rounding_mb": func(c *Config, v string) (err error) {
		c.MaxNonSplitRounding, err = parseMiB(v, c.LargeSegment/mib)
		return err
	},
	"garbage_collection_threshold": setField(parseThreshold, func(c *Config) *float64 { return &c.GarbageCollection }),
	"per_process_memory_fraction":  setField(parseFraction, func(c *Config) *float64 { return &c.MemoryFraction }),
	"roundup_power2_divisions":     setField(parseRoundup, func(c *Config) *[16]uint64 { return &c.Roundup }),
	"backend": func(_ *Config, v string) error {
		if v == "cudaMallocAsync" {
			return errors.New("vprof supports only the native allocator, not cudaMallocAsync; leave backend out")
		}
		if v != "native" {
			return fmt.Errorf("invalid %q: need native or cudaMallocAsync", v)
		}
		return nil
	},
	"pinned_num_register_threads": func(_ *Config, v string) error {
		n, err := parseCount(v)
		if err != nil || !isPowerOf2(n) || n > 128 {
			return fmt.Errorf("invalid %q: need a power of two up to 128", v)
		}
		return nil
	},
	"pinned_reserve_segment_size_mb": func(_ *Config, v string) error {
		if n, err := parseCount(v); err != nil || n == 0 {
			return fmt.Errorf("invalid %q: need a whole number above 0", v)
		}
		return nil
	},
	"expandable_segments_reserve": setField(parseExtent, func(c *Config) *SizeOrShare { return &c.ExpandableRange }),
	// Only C++ code can assign a class to a stream, so the value has no effect.
	"expandable_segments_reserve_by_class": func(_ *Config, v string) error {
		list, isList := strings.CutPrefix(v, "[")
		if !isList {
			return fmt.Errorf("invalid %q: need a list like [serving:0.25,loading:40G]", v)
		}
		for entry := range strings.SplitSeq(strings.TrimSuffix(list, "]"), ",") {
			class, size, _ := strings.Cut(entry, ":")
			if _, err := parseExtent(size); err != nil || class == "" {
				return fmt.Errorf("invalid %q: need CLASS:SHARE or CLASS:SIZE, like serving:0.25 or loading:40G", entry)
			}
		}
		return nil
	},
	"throw_on_cudamalloc_oom":           setField(parseBool, func(c *Config) *bool { return &c.ChecksLimitFirst }),
	"pinned_free_catch_all":             checkedSetting(parseBool),
	"pinned_max_cached_size_mb":         checkedSetting(parseCount),
	"pinned_max_round_threshold_mb":     checkedSetting(parseCount),
	"graph_capture_record_stream_reuse": checkedSetting(parseBool),
	"pinned_use_background_threads":     checkedSetting(parseBool),
	"pinned_use_cuda_host_register":     checkedSetting(parseBool),
	"pinned_use_hip_host_register":      checkedSetting(parseBool),
	"release_lock_on_cudamalloc":        checkedSetting(parseBool),
	"release_lock_on_hipmalloc":         checkedSetting(parseBool),
}

// setField returns the parser of a setting that stores its value in a field of Config.
func setField[T any](parse func(v string) (T, error), field func(c *Config) *T) func(c *Config, v string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = parse(v)
		return err
	}
}

// checkedSetting returns the parser of a setting that affects no device memory.
func checkedSetting[T any](parse func(v string) (T, error)) func(c *Config, v string) error {
	return setField(parse, func(*Config) *T { return new(T) })
}

func parseThreshold(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f > 0 && f < 1) {
		return 0, fmt.Errorf("invalid %q: need a number above 0 and below 1", v)
	}
	return f, nil
}

func parseFraction(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("invalid %q: need a number from 0 to 1", v)
	}
	return f, nil
}

// parseExtent reads a share of the device's memory, or a number of GiB with the suffix G.
func parseExtent(v string) (e SizeOrShare, err error) {
	number, isSize := strings.CutSuffix(v, "G")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(n > 0) || math.IsInf(n, 0):
		return e, fmt.Errorf("invalid %q: need a share of the memory or a size like 40G, above 0", v)
	case isSize:
		e.Bytes = int64(min(n*gib, math.MaxInt64/2))
	default:
		e.Share = n
	}
	return e, nil
}

func parseBool(v string) (bool, error) {
	if v != "True" && v != "False" {
		return false, fmt.Errorf("invalid %q: need True or False", v)
	}
	return v == "True", nil
}

// parseMiB parses a number of MiB that must be at least least, and returns bytes. Like PyTorch, it reduces a number
// that would overflow to the largest possible one.
func parseMiB(v string, least int64) (int64, error) {
	n, err := parseCount(v)
	if err != nil {
		return 0, err
	}
	if n < uint64(least) {
		return 0, fmt.Errorf("%s is too small: need at least %d MiB", v, least)
	}
	return int64(min(n, math.MaxInt64/mib)) * mib, nil
}

// parseRoundup parses the divisions: one number for all sizes, or a list of MiB:divisions, in which > stands for all
// larger sizes.
func parseRoundup(v string) (divisions [16]uint64, err error) {
	list, isList := strings.CutPrefix(v, "[")
	if !isList {
		d, err := parseCount(v)
		if err != nil || !isPowerOf2(d) {
			return divisions, fmt.Errorf("invalid %q: need a power of two", v)
		}
		for i := range divisions {
			divisions[i] = d
		}
		return divisions, nil
	}
	list = strings.TrimSuffix(strings.TrimSuffix(list, "]"), ",")
	if list == "" {
		return divisions, nil
	}
	last, first := 0, true
	for entry := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(entry, ":")
		d, err := parseCount(value)
		if err != nil || d != 0 && !isPowerOf2(d) {
			return divisions, fmt.Errorf("%q: need 0 or a power of two as the number of divisions", entry)
		}
		if key == ">" {
			for i := last + 1; i < len(divisions); i++ {
				divisions[i] = d
			}
			continue
		}
		size, err := parseCount(key)
		if err != nil || !isPowerOf2(size) {
			return divisions, fmt.Errorf("%q: need a power of two as the size", entry)
		}
		last = min(bits.Len64(size)-1, len(divisions)-1)
		if first { // sizes below the first key share its divisions
			for i := range last {
				divisions[i] = d
			}
			first = false
		}
		divisions[last] = d
	}
	return divisions, nil
}

func parseCount(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid %q: need a whole number", v)
	}
	return n, nil
}

func isPowerOf2(n uint64) bool { return n != 0 && n&(n-1) == 0 }

// Rules are those rules for PYTORCH_CUDA_ALLOC_CONF that differ between releases of PyTorch, as plain data; package
// stack has the rules of each release. The zero value is the newest release. The allocator's constants (512 bytes, 1,
// 2, 10 and 20 MiB) are the same in all known releases.
type Rules struct {
	// UnknownSettings are the keys that the release rejects.
	UnknownSettings []string
	// MaxSplitAbove reports whether max_split_size_mb must be above the size of a large segment; later releases also
	// accept that size itself.
	MaxSplitAbove bool
	// OrdersByAddress is [Config.OrdersByAddress].
	OrdersByAddress bool
}

// isKnown reports whether the release has a setting of this name.
func (r Rules) isKnown(key string) bool {
	_, known := parsers[key]
	return known && !slices.Contains(r.UnknownSettings, key)
}
