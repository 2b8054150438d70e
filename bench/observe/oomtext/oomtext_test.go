package oomtext

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// The wordings of the releases, as people have posted them.
func TestEveryWordingIsRead(t *testing.T) {
	for text, want := range map[string]Message{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512 bytes. GPU 1 has a total capacity of " +
			"16.00 GiB of which 4.00 MiB is free. Including non-PyTorch memory, this process has 15.50 GiB memory " +
			"in use. Of the allocated memory 11.50 GiB is allocated by PyTorch, and 3.75 GiB is reserved by PyTorch " +
			"but unallocated. If reserved but unallocated memory is large try setting " +
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory " +
			"Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)": {
			Rank: -1, GPU: 1, Requested: 512, Total: 16 * gib, Free: 4 * mib, Process: 15.5 * gib,
			Allocated: 11.5 * gib,
			Cached:    3.75 * gib,
		},
		// 2.1 misspells the capacity.
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 472.00 MiB. GPU 0 has a total capacty " +
			"of 24.00 GiB of which 114.50 MiB is free. Process 77 has 1.00 GiB memory in use. Process 78 has 256.00 " +
			"MiB memory in use. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the " +
			"allocated memory 18.25 GiB is allocated by PyTorch, and 3.50 GiB is reserved by PyTorch but " +
			"unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid " +
			"fragmentation.": {
			Rank: -1, GPU: 0, Requested: 472 * mib, Total: 24 * gib, Free: 114.5 * mib, Process: 22.5 * gib,
			Others: 1280 * mib, Allocated: 18.25 * gib, Cached: 3.5 * gib,
		},
		// A fraction of the memory, private pools, and the newer name of the setting.
		"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 80.00 GiB of which 60.00 GiB " +
			"is free. 16.00 GiB allowed; Of the allocated memory 14.00 GiB is allocated by PyTorch, with 1.50 GiB " +
			"allocated in private pools (e.g., CUDA Graphs), and 512.00 MiB is reserved by PyTorch but unallocated. " +
			"If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to " +
			"avoid fragmentation.": {
			Rank: -1, GPU: 3, Requested: 2 * gib, Total: 80 * gib, Free: 60 * gib, Allowed: 16 * gib,
			Allocated: 14 * gib,
			Pools:     1.5 * gib, Cached: 512 * mib,
		},
		// Until 2.0, and until 1.3.
		"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 6.50 GiB " +
			"already allocated; 17.00 MiB free; 6.75 GiB reserved in total by PyTorch) If reserved memory is >> " +
			"allocated memory try setting max_split_size_mb to avoid fragmentation.": {
			Rank: -1, GPU: 0, OldFormat: true, Requested: 20 * mib, Total: 8 * gib, Free: 17 * mib,
			Allocated: 6.5 * gib, Cached: 256 * mib,
		},
		"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 2; 8.00 GiB total capacity; 6.50 GiB " +
			"already allocated; 17.00 MiB free; 90.00 MiB cached)": {
			Rank: -1, GPU: 2, OldFormat: true, Requested: 20 * mib, Total: 8 * gib, Free: 17 * mib,
			Allocated: 6.5 * gib, Cached: 90 * mib,
		},
		// In a container the process does not know its own number, and stands among the others.
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity " +
			"of 16.00 GiB of which 64.00 MiB is free. Process 12345 has 15.75 GiB memory in use. Of the allocated " +
			"memory 14.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.": {
			Rank: -1, GPU: 0, Requested: 112 * mib, Total: 16 * gib, Free: 64 * mib, Process: 15.75 * gib,
			Allocated: 14.5 * gib, Cached: 512 * mib,
		},
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of " +
			"80.00 GiB of which 1.00 GiB is free. Process 1 has 20.00 GiB memory in use. Process 2 has 57.00 GiB " +
			"memory in use. Of the allocated memory 50.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by " +
			"PyTorch but unallocated.": {
			Rank: -1, GPU: 1, Requested: 2 * gib, Total: 80 * gib, Free: gib, Process: 57 * gib, Others: 20 * gib,
			Allocated: 50 * gib, Cached: 5 * gib,
		},
		// There is room for both: it is another.
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB. GPU 1 has a total capacity of " +
			"80.00 GiB of which 30.00 GiB is free. Process 1 has 20.00 GiB memory in use. Of the allocated memory " +
			"10.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.": {
			Rank: -1, GPU: 1, Requested: 40 * gib, Total: 80 * gib, Free: 30 * gib, Others: 20 * gib,
			Allocated: 10 * gib,
			Cached:    5 * gib,
		},
		"RuntimeError: CUDA error: out of memory":                                                  {Rank: -1, GPU: -1},
		"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": {Rank: -1, GPU: -1},
		"torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.00 KiB. GPU 0 has a total capacity of 8.00 " +
			"GiB": {Rank: -1, GPU: 0, Requested: 1024, Total: 8 * gib},
	} {
		require.True(t, Contains([]byte(text)))
		require.Equal(t, []Message{want}, Parse(text), text)
		broken := strings.ReplaceAll(text, ". ", ".\n")
		broken = strings.Replace(broken, "memory.\nTried", "memory. Tried", 1)
		require.Equal(t, []Message{want}, Parse(broken), "broken between sentences")
	}
	require.False(t, Contains([]byte("all is well")))
	require.Empty(t, Parse("all is well"))
}

// What killed the process is told from what a GPU lacks.
func TestTheHostsMemoryIsToldApart(t *testing.T) {
	for text, want := range map[string]string{
		"step 3\nslurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM " +
			"Killed.\nend": "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks " +
			"have been OOM Killed.",
		"RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ": "RuntimeError: DataLoader worker " +
			"(pid 7) is killed by signal: Killed.",
		"  exitcode  : -9 (pid: 12)":                      "exitcode  : -9 (pid: 12)",
		"CUDA out of memory. Tried to allocate 2.00 GiB.": "",
		"": "",
	} {
		require.Equal(t, want, HostMessage([]byte(text)))
	}
	require.LessOrEqual(t, len(HostMessage([]byte(strings.Repeat("x", 9999)+"oom-kill"+strings.Repeat("y", 9999)))),
		2*maxLineBytes)
}

// What is looked for word by word is what an expression of all wordings finds.
func TestErrorsAreFoundInTheirOrder(t *testing.T) {
	all := regexp.MustCompile(
		`(?:CUDA|HIP|XPU) out of memory\. Tried to allocate|CUDA (?:driver )?error: out of memory|CUBLAS_STATUS_ALLOC_FAILED`)
	pieces := append([]string{"CUDA ", "out of memory", "\n", " driver error: ", "]"}, oomWordings...)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(t, "text"), "")
		var want []span
		for _, at := range all.FindAllStringIndex(text, -1) {
			want = append(want, span{at[0], at[1]})
		}
		require.Equal(t, want, find(text))
		require.Equal(t, want != nil, Contains([]byte(text)))
	})
	require.Len(t, find(strings.Repeat(oomWordings[3]+oomWordings[5], MaxMessages)), MaxMessages)
}

// BenchmarkIs looks through 64 MB of what is no error.
func BenchmarkIs(b *testing.B) {
	text := bytes.Repeat([]byte("]"), 64<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		require.False(b, Contains(text))
	}
}

// The line that asked is the last of the traceback outside of PyTorch, and ranks are told apart.
func TestTracebacksNameTheRequester(t *testing.T) {
	log := `epoch 1
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 12, in <module>
[rank1]:     main()
[rank1]:   File "/home/me/model.py", line 40, in forward
[rank1]:     return self.mlp(x)
[rank1]:   File "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 125, in forward
[rank1]:     return F.linear(input, self.weight, self.bias)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacity of 16.00 GiB of which 4.00 MiB is free.
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 30, in step
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 4.00 MiB is free.
`
	all := Parse(log)
	require.Len(t, all, 2)
	require.Equal(t, "/home/me/model.py:40 forward", all[0].Where)
	require.Equal(t, 1, all[0].Rank)
	require.Equal(t, "/home/me/train.py:30 step", all[1].Where)
	require.Equal(t, 0, all[1].Rank)
	require.EqualValues(t, 2*gib, all[1].Requested)
}

// Whatever stands in a log, figures are none or real.
func FuzzParse(f *testing.F) {
	f.Add("[rank0]: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of " +
		"99999999999999999999.00 GiB")
	f.Add("File \"a\", line 1, in b\nCUDA error: out of memory\x1b[31m")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range Parse(text) {
			for _, n := range []int64{
				m.Requested, m.Total, m.Free, m.Process, m.Others, m.Allowed, m.Allocated,
				m.Pools, m.Cached,
			} {
				if n < 0 {
					t.Fatalf("%+v", m)
				}
			}
		}
	})
}
