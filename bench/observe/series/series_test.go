package series

import (
	"encoding/csv"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/internal/input"
)

const mib = 1 << 20

const smi = `timestamp, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/05 06:00:00.000, Tesla T4, 100 MiB, 15360 MiB, 5 %
2026/11/05 06:00:10.000, Tesla T4, 300 MiB, 15360 MiB, 90 %
`

func read(t *testing.T, text string) []Series {
	require.True(t, IsLog([]byte(text)))
	all, err := Read(strings.NewReader(text), "log")
	require.NoError(t, err)
	return all
}

func TestLogOfNvidiaSMIIsRead(t *testing.T) {
	require.False(t, IsLog([]byte("a,b\nmemory.used,1")))
	want := Series{
		GPU: "Tesla T4", Product: "Tesla T4", WatchedBytes: []float64{
			100 * mib,
			300 * mib,
		}, Peak: 300 * mib, Last: 300 * mib,
		Total: 15360 * mib, Elapsed: 10 * time.Second,
	}
	require.Equal(t, []Series{want}, read(t, smi))
	// A log that was continued has its header twice, and the last line may be cut.
	header, _, _ := strings.Cut(smi, "\n")
	again := strings.Replace(smi, "2026/11/05 06:00:10", header+"\n2026/11/05 06:00:10", 1)
	require.Equal(t, []Series{want}, read(t, again+"2026/11/05 06:00:20.000, Tesla T4, 3"))
	bare := strings.NewReplacer(" MiB", "", " %", "", " [MiB]", "", " [%]", "").Replace(smi)
	require.Equal(t, []Series{want}, read(t, bare))
}

func TestEveryGPUIsASeries(t *testing.T) {
	all := read(t, "index,memory.used\n0,1\n1,2\n0,3\n")
	require.Equal(t, []Series{
		{GPU: "0", WatchedBytes: []float64{1 * mib, 3 * mib}, Peak: 3 * mib, Last: 3 * mib},
		{GPU: "1", WatchedBytes: []float64{2 * mib}, Peak: 2 * mib, Last: 2 * mib},
	}, all)
	// Without numbers, GPUs of one name follow each other at one time.
	all = read(t, `timestamp, name, memory.used [MiB]
2026/11/05 06:00:00.000, Tesla T4, 1 MiB
2026/11/05 06:00:00.000, Tesla T4, 2 MiB
2026/11/05 06:00:01.000, Tesla T4, 3 MiB
2026/11/05 06:00:01.000, Tesla T4, 4 MiB
`)
	require.Len(t, all, 2)
	require.Equal(t, []float64{1 * mib, 3 * mib}, all[0].WatchedBytes)
	require.Equal(t, []float64{2 * mib, 4 * mib}, all[1].WatchedBytes)
	require.Equal(t, "Tesla T4 #2", all[1].GPU)
}

// The process that takes most is the training; another was there first, and a third came and went.
func TestProcessesAreToldApart(t *testing.T) {
	all := read(t, `timestamp, gpu_name, gpu_bus_id, pid, process_name, used_gpu_memory [MiB]
2026/11/05 06:00:00.000, Tesla T4, 0:3B:0.0, 7, /usr/bin/notebook, 500 MiB
2026/11/05 06:00:10.000, Tesla T4, 0:3B:0.0, 7, /usr/bin/notebook, 600 MiB
2026/11/05 06:00:10.000, Tesla T4, 0:3B:0.0, 9, python, 1000 MiB
2026/11/05 06:00:20.000, Tesla T4, 0:3B:0.0, 9, python, 3000 MiB
2026/11/05 06:00:20.000, Tesla T4, 0:3B:0.0, 7, /usr/bin/notebook, 500 MiB
2026/11/05 06:00:20.000, Tesla T4, 0:3B:0.0, 11, nvtop, 10 MiB
2026/11/05 06:00:30.000, Tesla T4, 0:3B:0.0, 7, /usr/bin/notebook, 500 MiB
`)
	require.Equal(t, []Series{{
		GPU: "Tesla T4 0:3B:0.0", Product: "Tesla T4", WatchedBytes: []float64{1000 * mib, 3000 * mib},
		Process: Process{9, "python", 3000 * mib},
		Others:  []Process{{7, "/usr/bin/notebook", 600 * mib}, {11, "nvtop", 10 * mib}},
		Peak:    3510 * mib, Last: 500 * mib, Elapsed: 10 * time.Second,
	}}, all)
	// Without a clock, a process that comes again begins the next moment.
	all = read(t, "pid,used_memory\n7,5\n9,10\n7,5\n9,30\n")
	require.Equal(t, []float64{10 * mib, 30 * mib}, all[0].WatchedBytes)
	require.EqualValues(t, 35*mib, all[0].Peak)
	_, err := Read(strings.NewReader("pid, used_memory [MiB]\n7, [N/A]\n"), "log")
	require.ErrorContains(t, err, "does not report the memory of processes here; log the GPU with --query-gpu")
}

// What vprof monitor writes is read back, in both formats, with the GPU's
// highest use between looks and without looks that failed.
func TestLogOfTheMonitorIsRead(t *testing.T) {
	start := time.Date(2026, 11, 5, 6, 0, 0, 0, time.UTC)
	sample := func(seconds int, used int64) monitor.Sample {
		return monitor.Sample{
			Time: start.Add(time.Duration(seconds) * time.Second), GPU: 1, Name: "Card", UUID: "GPU-1",
			Total: 900 * mib, Used: used * mib, Highest: (used + 50) * mib,
		}
	}
	watched := int64(150 * mib)
	with := sample(2, 300)
	with.Watched = &watched
	for name, c := range map[string]struct {
		samples []monitor.Sample
		want    Series
	}{
		"board": {
			[]monitor.Sample{
				sample(0, 100),
				{Time: start, GPU: 1, Name: "Card", UUID: "GPU-1", Error: "GPU is lost"},
				sample(4, 200),
			},
			Series{
				WatchedBytes: []float64{100 * mib, 200 * mib}, Peak: 250 * mib, Last: 200 * mib,
				Elapsed: 4 * time.Second,
			},
		},
		"watched": {
			[]monitor.Sample{with, with},
			Series{
				WatchedBytes: []float64{150 * mib, 150 * mib}, Others: []Process{{Peak: 150 * mib}}, Peak: 350 * mib,
				Last: 300 * mib,
			},
		},
	} {
		c.want.GPU, c.want.Product, c.want.Total = "1 Card", "Card", 900*mib
		var csvText, jsonText strings.Builder
		w, e := csv.NewWriter(&csvText), json.NewEncoder(&jsonText)
		require.NoError(t, w.Write(monitor.Header()))
		for _, s := range c.samples {
			require.NoError(t, w.Write(s.Record()))
			require.NoError(t, e.Encode(s))
		}
		w.Flush()
		require.Equal(t, []Series{c.want}, read(t, csvText.String()), name)
		require.Equal(t, []Series{c.want}, read(t, jsonText.String()), name)
	}
	// JSON has the processes besides.
	both := sample(0, 300)
	both.Processes = []monitor.Process{
		{PID: 7, Name: "jupyter", Used: 100 * mib},
		{PID: 9, Name: "python", Used: 200 * mib},
		{PID: 11, Used: -1},
	}
	text, err := json.Marshal(both)
	require.NoError(t, err)
	got := read(t, string(text)+"\n")[0]
	require.Equal(t, []float64{200 * mib}, got.WatchedBytes)
	require.Equal(t, []Process{{7, "jupyter", 100 * mib}}, got.Others)

	both.Processes = []monitor.Process{{PID: 9, Name: "python", Used: 400 * mib}}
	text, err = json.Marshal(both)
	require.NoError(t, err)
	require.Equal(t, []float64{300 * mib}, read(t, string(text)+"\n")[0].WatchedBytes,
		"no process has more than is in use")
}

func TestDamageIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "log:1: there is no column",
		"a,b\n":                          "log:1: there is no column memory.used",
		"memory.used\n":                  "log:1: there are no samples",
		"memory.used\nmuch\n":            `log:2: memory.used: "much" is not a number`,
		"memory.used\n1\nNaN\n":          `log:3: memory.used: "NaN" is not a number`,
		"memory.used\n-1\n":              `"-1" is not a number`,
		"memory.used,memory.total\n1,x":  `memory.total: "x"`,
		"memory.used\n\"1\n":             "log:2:",
		"pid,used_memory\nx,1\n":         `log:2: pid: "x": need a process ID`,
		"time,gpu,used_bytes\nnow,0,1\n": `log:2: time: "now"`,
		"time,gpu,used_bytes\n2026-11-05T06:00:00Z,0,\n": "log:2: ",
		"{\"used_bytes\": 1}\n{\"used_bytes\": \"x\"}\n": "log:2: json",
		"memory.used [GiB]\n1\n":                         "column memory.used is in [GiB]",
		"memory.used,memory.used\n1,2\n":                 "memory.used appears twice",
		"memory.used,memory.total\n3,2\n": "memory.used: 3 is more than " +
			"memory.total, 2",
		"{\"used_bytes\": 1, \"used_bytes\": 2}\n":                       "used_bytes appears twice",
		"{\"used_bytes\": 3, \"total_bytes\": 2}\n":                      "3 is more than total_bytes, 2",
		"{\"used_bytes\": 3, \"watched_bytes\": -2}\n":                   "watched_bytes: -2",
		"{\"used_bytes\": 3, \"processes\":[{\"pid\":1},{\"pid\":1}]}\n": "list each process once",
		"{\"used_bytes\": -1}\n":                                         "log:1: -1 is not a possible number of bytes",
		"{\"processes\": [{\"pid\": 7, \"used_bytes\": 5}]}\n":           "log:1: used_bytes: missing",
		"{\"used_bytes\": 1, \"error\": \"lost\"}\n":                     "there are no samples",
		"time,gpu,used_bytes,watched_bytes\n2026-11-05T06:00:00Z,0,1,x":  `watched_bytes: "x"`,
	} {
		_, err := Read(strings.NewReader(text), "log")
		require.ErrorAs(t, err, new(*input.FormatError), text)
		require.ErrorContains(t, err, want, text)
	}
}

// 3 bytes a sample stand out of noise of 100, whatever the outliers.
func TestGrowthIsFoundThroughNoiseAndOutliers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var grows, stays []float64
	for i := range 1000 {
		noise := 100 * r.NormFloat64()
		if i%97 == 0 {
			noise += 1e6
		}
		grows, stays = append(grows, 3*float64(i)+noise), append(stays, noise)
	}
	got := TrendOf(grows)
	require.InDelta(t, 3, got.PerSample, 0.1)
	require.Less(t, got.P, 1e-6)
	require.Greater(t, TrendOf(stays).P, 0.01)
	require.InDelta(t, 1, TrendOf([]float64{1, 2, 3}).P, 0)
}

// Values in reverse have the opposite slope and the same probability.
func TestTrendIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), 4, 60).Draw(t, "values")
		back := make([]float64, len(values))
		for i, v := range values {
			back[len(back)-1-i] = v
		}
		a, b := TrendOf(values), TrendOf(back)
		require.InDelta(t, a.P, b.P, 1e-12)
		require.GreaterOrEqual(t, a.P, 0.0)
		require.LessOrEqual(t, a.P, 1.0)
	})
}

func FuzzRead(f *testing.F) {
	f.Add(smi)
	f.Add("index,memory.used\n0,1\n1,2\n0,3\n")
	f.Add("pid, used_gpu_memory [MiB], gpu_name\n7, 5 MiB, T4\n9, 10 MiB, T4\n7, [N/A], T4\n")
	f.Add("time,gpu,used_bytes,watched_bytes\n2026-11-05T06:00:00Z,0,100,50\n")
	f.Add(`{"time": "2026-11-05T06:00:00Z", "gpu": 0, "used_bytes": 10, "processes": [{"pid": 7, "used_bytes": 5}]}` +
		"\n")
	f.Add(`{"processes": [{"pid": 7, "used_bytes": 5}]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		for _, s := range all {
			require.LessOrEqual(t, TrendOf(s.WatchedBytes).P, 1.0)
			require.GreaterOrEqual(t, s.Peak, s.Last)
			for _, v := range s.WatchedBytes {
				require.GreaterOrEqual(t, v, 0.0)
				require.LessOrEqual(t, v, float64(s.Peak))
			}
		}
	})
}
