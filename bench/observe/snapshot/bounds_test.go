package snapshot

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/pickle"
)

// Parts of a pickle.

func dictOf(keysAndValues ...string) string { return "}(" + strings.Join(keysAndValues, "") + "u" }

func listOf(items ...string) string { return "](" + strings.Join(items, "") + "e" }

func str(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func num(n int) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func pickled(value string) []byte { return []byte("\x80\x02" + value + ".") }

func times(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(item(i))
	}
	return b.String()
}

// event returns one of a trace.
func event(action string, address, size int) string {
	return dictOf(str("action"), str(action), str("addr"), num(address), str("size"), num(size))
}

// shotOf returns a snapshot of the given segments and of one device's events.
func shotOf(segments, events string) []byte {
	return pickled(dictOf(str("segments"), listOf(segments), str("device_traces"), listOf(listOf(events))))
}

// attacks returns files of about n bytes, each made to take much memory or time to read, with the text of the refusal;
// "" is none.
func attacks(n int) map[string]struct {
	file []byte
	want string
} {
	type attack = struct {
		file []byte
		want string
	}
	long := str(strings.Repeat("a", 1<<16))
	oneStack := func(refs string) string { // memo 1 is a list of frames, all of them memo 0
		return listOf(dictOf(str("filename"), long)+"q\x00", refs) + "q\x01"
	}
	inUse := dictOf(str("size"), "K\x01", str("state"), str("active_allocated"), str("frames"), "h\x01")
	return map[string]attack{
		"lists":      {pickled(strings.Repeat("]", n)), "its contents unpack to more"},
		"nones":      {pickled(strings.Repeat("N", pickle.MaxStack+1)), "stack"},
		"dicts":      {pickled("]" + strings.Repeat("}a", n/2)), "its contents unpack to more"},
		"nested":     {pickled("]" + strings.Repeat("\x85", n)), "its contents unpack to more"},
		"references": {shotOf("}q\x00"+strings.Repeat("h\x00", n/32), ""), "twice"},
		"frames": {
			shotOf(dictOf(str("blocks"),
				listOf(dictOf(str("frames"), oneStack(strings.Repeat("h\x00", min(n/2, pickle.MaxStack/2)))))), ""),
			"its contents unpack to more",
		},
		"stacks": {shotOf(dictOf(str("total_size"), num(1<<40), str("blocks"),
			listOf(dictOf(str("size"), "K\x01", str("frames"), oneStack(strings.Repeat("h\x00", 300))),
				times(n/64, func(int) string { return inUse }))), ""), ""},
		"overlapping": {shotOf(times(n/64, func(i int) string {
			return dictOf(str("address"), num(i), str("total_size"), num(n*4096))
		}), ""), "overlaps"},
		"unmapping": {shotOf("", times(n/128, func(i int) string { return event("segment_map", i*4096, 1024) })+
			times(n/128, func(i int) string { return event("segment_unmap", i*4096, 512) })), ""},
		"freeing": {shotOf("", times(n/128, func(i int) string { return event("segment_free", i, 1<<40) })+
			times(n/128, func(i int) string { return event("free", i*512, 512) })), ""},
	}
}

// A file of 64 MiB may take 1 GiB and 5 s; these are a thirty-second of it, and a busy machine has a minute. What is
// allocated in all is more than what is held at once.
func TestSmallFilesCannotFillAMachine(t *testing.T) {
	for name, a := range attacks(2 << 20) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			s, err := Parse(a.file, "attack")
			if a.want != "" {
				require.ErrorContains(t, err, a.want)
			} else {
				require.NoError(t, err)
				for device := range s.Traces {
					s.Summarize(device)
				}
			}
			runtime.ReadMemStats(&after)
			require.Less(t, time.Since(start), time.Minute)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
		})
	}
}
