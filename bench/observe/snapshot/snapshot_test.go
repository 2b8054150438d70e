package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
)

const mib = 1 << 20

func readTestFile(t *testing.T, name string) (*Snapshot, error) {
	path := "testdata/" + name
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return Parse(data, path)
}

// testdata/README.md says what is in the files.
func TestEveryProtocolReadsTheSame(t *testing.T) {
	for _, protocol := range []int{2, 3, 4, 5} {
		s, err := readTestFile(t, fmt.Sprintf("protocol%d.pickle", protocol))
		require.NoError(t, err)
		require.Len(t, s.Segments, 2)
		require.Equal(t, "expandable_segments:False", s.AllocConf)
		require.EqualValues(t, 0x7f5e00000000, s.Segments[0].Address)
		require.Equal(t, []int{0}, s.Devices())
		got := s.Summarize(0)
		// The peak is before the 20 MiB went: 16 + 32 + 20.
		require.Equal(t, Summary{
			Allocated: 48 * mib, Requested: 48*mib - 100, Reserved: 84 * mib,
			PeakAllocated: 68 * mib, PeakReserved: 84 * mib, Traced: 9, OOMs: 1, Failed: 1 << 40,
			Failure: &Failure{Requested: 1 << 40, Free: 100}, Troughs: []int64{48 * mib},
			LargestFree: 20 * mib, Free: 24 * mib, Segments: 2,
			Categories: []Site{{"optimizer state", 1, 32 * mib}, {"weights", 1, 16 * mib}},
			Largest:    []Block{s.Segments[0].Blocks[1], s.Segments[0].Blocks[0]},
			Sites:      []Site{{"_init_group", 1, 32 * mib}, {"examples/train.py:12 main", 1, 16 * mib}},
		}, got)
		require.InDelta(t, 1-20.0/24, got.Fragmentation(), 1e-12)
		require.Equal(t, "examples/train.py:12 main", got.Largest[1].String())
	}
}

// Falls of 8, 10 and 9, and in between one of 2 that is not the end of a step.
func TestTroughsAreWhereCurvesStopToFall(t *testing.T) {
	require.Equal(t, []int64{2, 1, 3}, troughs([]int64{0, 10, 2, 5, 11, 9, 11, 1, 6, 12, 7, 3, 4}))
	require.Nil(t, troughs([]int64{1, 2, 3}))
	require.Equal(t, []int64{0}, troughs([]int64{5, 0}))
}

func TestSnapshotThatCallsCodeIsRefused(t *testing.T) {
	_, err := readTestFile(t, "code.pickle")
	require.ErrorAs(t, err, new(*input.FormatError))
	require.ErrorContains(t, err, "nothing of this file was run")
}

func TestEveryCutIsAnError(t *testing.T) {
	whole, err := os.ReadFile("testdata/protocol4.pickle")
	require.NoError(t, err)
	for n := range whole {
		_, err := Read(bytes.NewReader(whole[:n]), "cut")
		require.ErrorAs(t, err, new(*input.FormatError), n)
	}
}

func TestDamageIsNamed(t *testing.T) {
	for want, text := range map[string]string{
		"not a pickle":                      "{}",
		"want a dict":                       "\x80\x02N.",
		"no segments":                       "\x80\x02}.",
		"segments: want a list":             "\x80\x02}X\x08\x00\x00\x00segmentsNs\x80\x02X\x08\x00\x00\x00segmentsK\x01s.",
		"protocol 6 is newer":               "\x80\x05\x80\x06.",
		"values are left over":              "\x80\x02NN.",
		"takes a value where there is none": "\x80\x02.",
		"there is no mark":                  "\x80\x02t.",
		"takes a mark for a value":          "\x80\x02(.",
		"appends to what is no list":        "\x80\x02NNa.",
		"sets items of what is no dict":     "\x80\x02NNNs.",
		"uses memo 7":                       "\x80\x02h\x07.",
		"sets memo 7 before 0":              "\x80\x02Nq\x07.",
		"without a value":                   "\x80\x02}(Nu.",
		"cut off":                           "\x80\x02X\xff\xff\xff\xff",
		"is more than any address":          "\x80\x02\x8a\x0a0123456789.",
		"segments[0].total_size: -1 is not": "\x80\x02}X\x08\x00\x00\x00segments](}X\x0a\x00\x00\x00total_sizeJ\xff\xff\xff\xffses.",
	} {
		_, err := Read(bytes.NewReader([]byte(text)), "s.pickle")
		require.ErrorContains(t, err, want)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"protocol2", "protocol3", "protocol4", "protocol5", "code"} {
		data, err := os.ReadFile("testdata/" + name + ".pickle")
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(bytes.NewReader(data), "fuzz")
		if err != nil {
			require.Nil(t, s)
			return
		}
		for _, device := range s.Devices() {
			got := s.Summarize(device)
			require.GreaterOrEqual(t, got.Reserved, got.Allocated)
			require.GreaterOrEqual(t, got.PeakReserved, got.Reserved)
			require.LessOrEqual(t, got.LargestFree, got.Free)
		}
	})
}
