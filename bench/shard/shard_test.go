package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
)

var v1 = report.Tool{Version: "v1.0.0"}

func header(units, i, of int) Header {
	return Header{Plan: Plan{Verb: "plan", Hash: "7", Units: units, Tool: v1}, Shard: i, ShardCount: of}
}

// work completes all units that are left, a few at a time; unit n gives 10 n.
func work(t require.TestingT, s *File, atOnce int) {
	for {
		from, _ := s.Next()
		n := min(atOnce, s.End()-from)
		if n == 0 {
			require.NoError(t, s.Finish())
			return
		}
		var result []int
		for unit := from; unit < from+n; unit++ {
			result = append(result, 10*unit)
		}
		require.NoError(t, s.Put(n, result))
	}
}

func merged(dir string) (all []int, err error) {
	set, err := ReadDir(dir)
	if err != nil {
		return nil, err
	}
	err = set.Results(func(_, _ int, result json.RawMessage) error {
		var part []int
		if err := json.Unmarshal(result, &part); err != nil {
			return err
		}
		all = append(all, part...)
		return nil
	})
	return all, err
}

// However many shards there are, whatever their order, and wherever their writers
// are ended or the disk ends: run again, they merge to the whole.
func TestShardsMergeToTheWholeWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "shard")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		units, of := rapid.IntRange(1, 40).Draw(t, "units"), rapid.IntRange(1, 12).Draw(t, "shards")
		atOnce := rapid.IntRange(1, 5).Draw(t, "at once")
		for _, i := range rapid.Permutation(sequence(of)).Draw(t, "order") {
			s, err := Open(dir, header(units, i, of))
			require.NoError(t, err)
			if rapid.Bool().Draw(t, "ends early") {
				if from, _ := s.Next(); from < s.End() {
					require.NoError(t, s.PutPartial("half"))
					require.NoError(t, s.Put(1, []int{10 * from}))
				}
				path := s.path + unfinishedSuffix
				require.NoError(t, s.Fail(errors.New("no space left on device"), 1, "n1", time.Time{}))
				info, err := os.Stat(path)
				require.NoError(t, err)
				if _, err = merged(dir); s.header.From < s.header.To {
					require.Error(t, err)
				}
				require.NoError(t, os.Truncate(path, rapid.Int64Range(0, info.Size()).Draw(t, "left")))
				s, err = Open(dir, header(units, i, of))
				require.NoError(t, err)
			}
			work(t, s, atOnce)
			done, err := Open(dir, header(units, i, of))
			require.NoError(t, err)
			require.Nil(t, done, "it is whole")
		}
		all, err := merged(dir)
		require.NoError(t, err)
		for unit, result := range all {
			require.Equal(t, 10*unit, result)
		}
		require.Len(t, all, units)
	})
}

func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, i := range []int{1, 4} {
		s, err := Open(dir, header(16, i, 8))
		require.NoError(t, err)
		work(t, s, 1)
	}
	s, err := Open(dir, header(16, 6, 8))
	require.NoError(t, err)
	require.NoError(t, s.Put(1, []int{1}))
	require.NoError(t, s.Fail(errors.New("no space left on device"), 1, "n3", time.Time{}))
	_, err = merged(dir)
	var incomplete *IncompleteError
	require.ErrorAs(t, err, &incomplete)
	require.True(t, input.IsBadInput(err))
	require.ErrorContains(t, err,
		"missing: shard 0, 2-3, 5, 7 of 8; shard 6 has 1 of 2 units and failed on n3: no space left on device")
}

func TestTwoProcessesDoNotWriteOneShard(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, header(4, 0, 2))
	require.NoError(t, err)
	_, err = Open(dir, header(4, 0, 2))
	require.ErrorContains(t, err, "another process is writing this shard")
	work(t, s, 1)
	s, err = Open(dir, header(4, 0, 2))
	require.NoError(t, err)
	require.Nil(t, s)
}

func TestDifferentPlansAndVersionsDoNotMix(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, header(4, 0, 2))
	require.NoError(t, err)
	work(t, s, 1)
	older := header(4, 0, 2)
	older.Tool.Version = "v0.9.0"
	_, err = Open(dir, older)
	require.ErrorContains(t, err, "created by vprof v1.0.0, and this is v0.9.0")
	older.Shard = 1
	s, err = Open(dir, older)
	require.NoError(t, err)
	work(t, s, 1)
	_, err = ReadDir(dir)
	require.ErrorContains(t, err, "shard-1-of-2.jsonl: created by vprof v0.9.0, but shard-0-of-2.jsonl by v1.0.0")

	dir = t.TempDir()
	for i, units := range []int{4, 6} {
		s, err := Open(dir, header(units, i, 2))
		require.NoError(t, err)
		work(t, s, 1)
	}
	_, err = ReadDir(dir)
	require.ErrorContains(t, err, "(plan of 6 units in 2 shards, not plan of 4 units in 2 shards); use another folder")
}

func TestSchedulersSayWhichShard(t *testing.T) {
	for _, c := range []struct {
		flag string
		env  map[string]string
		want Part
		says string
	}{
		{"2/5", nil, Part{2, 5}, ""},
		{"auto", map[string]string{"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4"}, Part{3, 4}, ""},
		{"auto", map[string]string{
			"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_MIN": "1",
			"SLURM_ARRAY_TASK_STEP": "4", "SLURM_ARRAY_TASK_COUNT": "3",
		}, Part{2, 3}, ""},
		{"auto/16", map[string]string{"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "1"}, Part{7, 16}, ""},
		{"auto/3", map[string]string{"JOB_COMPLETION_INDEX": "2"}, Part{2, 3}, ""},
		{
			"auto/2",
			map[string]string{"JOB_COMPLETION_INDEX": "2"},
			Part{},
			"shards count from 0, so the last of 2 is 1/2",
		},
		{
			"auto",
			map[string]string{"SLURM_ARRAY_TASK_ID": "x", "SLURM_ARRAY_TASK_COUNT": "4"},
			Part{},
			`auto: invalid SLURM_ARRAY_TASK_ID="x", SLURM_ARRAY_TASK_MIN="0", SLURM_ARRAY_TASK_STEP="1": need whole numbers, and a step of 1 or more`,
		},
		{"-1/2", nil, Part{}, "shards count from 0"},
		{"a/b", nil, Part{}, "need i/n"},
	} {
		p, err := Parse(c.flag, func(name string) string { return c.env[name] })
		require.Equal(t, c.want, p, c.flag)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
}

// The parts of any number of units are neighbors, and sizes differ by at most one.
func TestPartsAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units, of := rapid.IntRange(0, 1000).Draw(t, "units"), rapid.IntRange(1, 100).Draw(t, "of")
		next := 0
		for i := range of {
			from, to := Part{i, of}.Range(units)
			require.Equal(t, next, from)
			require.InDelta(t, float64(units)/float64(of), to-from, 1)
			next = to
		}
		require.Equal(t, units, next)
	})
}

// FuzzRead reads anything as the file of a shard: it is refused with a sentence or read, and nothing else.
func FuzzRead(f *testing.F) {
	f.Add(`{"schema":"vprof.shard/v1","verb":"plan","units":2,"of":1,"to":2}` + "\n" +
		`{"unit":0,"units":2,"result":[]}` + "\n" + `{"done":2}` + "\n")
	f.Add(`{"schema":"vprof.shard/v1","units":2,"of":1,"to":2}` + "\n" + `{"failure":{"reason":"x"}}` +
		"\n" + `{"unit":9`)
	dir := f.TempDir() // a folder for each input would be most of the time
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "shard-0-of-1.jsonl"), []byte(text), 0o600))
		if _, err := merged(dir); err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
		r := newReader("x", strings.NewReader(text))
		for {
			_, err := r.readText()
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, errTruncated))
				return
			}
			require.LessOrEqual(t, r.offset, int64(len(text)))
		}
	})
}

// BenchmarkMerge reads 10,000 shards of 20 units of 4 KiB, which should take at most 20 s.
func BenchmarkMerge(b *testing.B) {
	dir, of := b.TempDir(), 10_000
	result := json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", 4<<10)))
	for i := range of {
		h := header(20*of, i, of)
		h.Schema = Schema
		h.From, h.To = Part{i, of}.Range(h.Units)
		var text strings.Builder
		e := json.NewEncoder(&text)
		require.NoError(b, e.Encode(h))
		for unit := h.From; unit < h.To; unit++ {
			require.NoError(b, e.Encode(line{Unit: &unit, Units: 1, Result: result}))
		}
		n := 20
		require.NoError(b, e.Encode(line{Done: &n}))
		require.NoError(b, os.WriteFile(filepath.Join(dir, h.file()), []byte(text.String()), 0o600))
	}
	b.ReportAllocs()
	for b.Loop() {
		set, err := ReadDir(dir)
		require.NoError(b, err)
		units := 0
		require.NoError(b, set.Results(func(_, n int, _ json.RawMessage) error { units += n; return nil }))
		require.Equal(b, 20*of, units)
	}
}
