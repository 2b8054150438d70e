package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// measuredOn returns a sweep of one batch size on cuda:0 of a machine.
func measuredOn(d Device) *Report {
	r := toySweep()
	d.Name = "cuda:0"
	r.Stopped, r.Warnings, r.Devices, r.Points = nil, nil, []Device{d}, r.Points[:1]
	run := *r.Points[0].Run
	run.Simulated, run.At = false, time.Date(2026, 11, 5, 7, 0, 0, 0, time.UTC)
	r.Points[0].Device, r.Points[0].Run = "cuda:0", &run
	return r
}

var (
	t4    = Device{GPU: "t4", Title: "Tesla T4", Memory: 15 << 30, Driver: "570.10", CUDA: "12.8"}
	h100  = Device{GPU: "h100", Title: "NVIDIA H100", Memory: 80 << 30, Driver: "580.65", CUDA: "13.0"}
	known = func(d Device, uuid, host string) Device { d.UUID, d.Host = uuid, host; return d }
)

func names(reports ...*Report) []string {
	var all []string
	for _, r := range reports {
		for i, d := range r.Devices {
			if r.Points[i].Device != d.Name {
				panic("a point of another name")
			}
			all = append(all, d.Name)
		}
	}
	return all
}

func TestGPUsOfOneNameAreToldApart(t *testing.T) {
	half := t4
	half.Memory /= 2
	newer := t4
	newer.Driver = "580.65"
	for name, c := range map[string]struct {
		devices []Device
		want    []string
		untold  bool
	}{
		"machines": {
			[]Device{known(t4, "GPU-1", "n1"), known(h100, "GPU-2", "n2")},
			[]string{"n1/cuda:0", "n2/cuda:0"},
			false,
		},
		"one GPU twice": {
			[]Device{known(t4, "GPU-1", "n1"), known(t4, "GPU-1", "n1")},
			[]string{"cuda:0", "cuda:0"},
			false,
		},
		"one kind on a machine": {
			[]Device{known(t4, "GPU-1", "n1"), known(t4, "GPU-2", "n1")},
			[]string{"n1/cuda:0 (GPU-1)", "n1/cuda:0 (GPU-2)"},
			false,
		},
		"another driver": {
			[]Device{known(t4, "GPU-1", "n1"), known(newer, "GPU-1", "n1")},
			[]string{"n1/cuda:0 (driver 570.10)", "n1/cuda:0 (driver 580.65)"},
			false,
		},
		"old files, two kinds":  {[]Device{t4, h100}, []string{"cuda:0 (t4)", "cuda:0 (h100)"}, false},
		"old files, two sizes":  {[]Device{t4, half}, []string{"cuda:0 (15.00 GiB)", "cuda:0 (7.50 GiB)"}, false},
		"old files, who knows":  {[]Device{t4, t4}, []string{"cuda:0", "cuda:0"}, true},
		"an old file and a new": {[]Device{t4, known(h100, "GPU-2", "n2")}, []string{"cuda:0", "n2/cuda:0"}, false},
		"an old file of the new": {
			[]Device{t4, known(t4, "GPU-1", "")},
			[]string{"cuda:0 (unknown)", "cuda:0 (GPU-1)"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var reports []*Report
			for _, d := range c.devices {
				reports = append(reports, measuredOn(d))
			}
			NameDevices(reports...)
			require.Equal(t, c.want, names(reports...))
			if c.untold {
				require.Len(t, reports[0].Warnings, 1)
				require.Contains(t, reports[0].Warnings[0].What, "the files do not identify GPU cuda:0")
			} else {
				require.Empty(t, reports[0].Warnings)
			}
		})
	}
}

// Whatever GPUs there are: two reports' devices have one name if and only if they
// have one identity, and telling apart again changes nothing.
func TestNamesAreIdentities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		var reports []*Report
		for range rapid.IntRange(1, 8).Draw(t, "reports") {
			d := rapid.SampledFrom([]Device{t4, h100}).Draw(t, "board")
			d.UUID, d.Host, d.Driver = some("uuid", "", "GPU-1", "GPU-2"), some("host", "", "n1", "n2"),
				some("driver", "", "570.10", "580.65")
			r := measuredOn(d)
			d.Name = some("name", "cuda:0", "cuda:1", "n1/cuda:0")
			r.Devices[0].Name, r.Points[0].Device = d.Name, d.Name
			reports = append(reports, r)
		}
		var before []identity
		for _, r := range reports {
			before = append(before, r.Devices[0].identity())
		}
		NameDevices(reports...)
		for i, r := range reports {
			for j, other := range reports {
				require.Equal(t, before[i] == before[j], r.Devices[0].Name == other.Devices[0].Name,
					fmt.Sprint(r.Devices[0], other.Devices[0]))
			}
		}
		once := names(reports...)
		NameDevices(reports...)
		require.Equal(t, once, names(reports...))
	})
}

// Five machines' lines in one file are five GPUs again when it is read, and all that is written of them says which.
func TestGPUsStayApartInEveryFormat(t *testing.T) {
	var lines bytes.Buffer
	reports := []*Report{measuredOn(known(t4, "GPU-1", "n1")), measuredOn(known(h100, "GPU-2", "n2"))}
	for _, r := range reports {
		require.NoError(t, Write(&lines, JSONL, r))
	}
	read, err := Read("all.jsonl", &lines)
	require.NoError(t, err)
	require.Len(t, read, 2, "their devices share a name and are not the same")
	merged, err := Merge(read...)
	require.NoError(t, err)
	require.Equal(t, []string{"n1/cuda:0", "n2/cuda:0"}, names(merged))

	var table, csv bytes.Buffer
	require.NoError(t, Write(&table, Table, merged))
	require.NoError(t, Write(&csv, CSV, merged))
	for _, want := range []string{
		"Tesla T4 with 15.00 GiB, cuda:0 of n1, driver 570.10",
		"NVIDIA H100 with 80.00 GiB, cuda:0 of n2, driver 580.65",
	} {
		require.Contains(t, table.String(), want)
	}
	require.Contains(t, csv.String(), "t4,Tesla T4,16106127360,GPU-1,false,n1,570.10,12.8,2026-11-05T07:00:00Z")

	text, err := json.Marshal(merged)
	require.NoError(t, err)
	again, err := Read("all.json", bytes.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, names(merged), names(again...))
}
