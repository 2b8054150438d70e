package device_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
)

func TestGPUOfOnesOwn(t *testing.T) {
	g, err := device.ReadSpec(strings.NewReader("name: mine\nlike: rtx-4090\nmemory: 48GiB\n"), "mine.yaml")
	require.NoError(t, err)
	like, err := device.Lookup("rtx-4090")
	require.NoError(t, err)
	require.EqualValues(t, 48<<30, g.Memory)
	like.Name, like.Product, like.Aliases, like.Memory, like.Source = "mine", "mine", nil, g.Memory, "mine.yaml"
	require.Equal(t, like, g)

	g, err = device.ReadSpec(strings.NewReader(
		"name: new\nmemory: 20GiB\ncompute_capability: 8.7\nmultiprocessors: 20\nfp32_tflops: 7.5\n"), "new.yaml")
	require.NoError(t, err)
	require.Equal(t, device.Capability(87), g.Capability)
	require.Equal(t, 1536, g.ThreadsPerSM)
	require.InDelta(t, 7.5e12, g.Peak.FP32, 1)
}

func TestWhatNoGPUCanBeIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                               "x.yaml: the file describes no GPU; write its name, memory, compute_capability and multiprocessors",
		"memory: 1GiB":                                   "x.yaml: name is missing",
		"name: x":                                        "memory: 0 B",
		"name: x\nlike: nosuch":                          `like: unknown GPU "nosuch"`,
		"name: x\nlike: t4\nsms: 2":                      "field sms not found",
		"name: x\nlike: t4\nmemory: -4GiB":               "memory: ",
		"name: x\nlike: t4\nmemory: 9000TiB":             "memory: ",
		"name: x\nlike: t4\ncontext: 99GiB":              "context: ",
		"name: x\nlike: t4\nmultiprocessors: -1":         "multiprocessors: -1",
		"name: x\nlike: t4\ncompute_capability: .nan":    "compute_capability",
		"name: x\nlike: t4\naddresses: up":               `addresses: invalid "up": need rising or falling`,
		"name: x\nlike: t4\nfp32_tflops: .inf":           "fp32_tflops: invalid rate +Inf",
		"name: x\nmemory: 4GiB\ncompute_capability: 7.5": "multiprocessors: 0",
		"name: x\nname: y":                               "already defined",
		strings.Repeat("#", 1<<17):                       "longer than",
	} {
		_, err := device.ReadSpec(strings.NewReader(text), "x.yaml")
		require.ErrorAs(t, err, new(*device.SpecError), text)
		require.ErrorContains(t, err, want)
	}
}

func FuzzReadSpec(f *testing.F) {
	f.Add("name: mine\nlike: rtx-4090\nmemory: 48GiB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := device.ReadSpec(strings.NewReader(text), "x"); err == nil {
			require.Positive(t, g.Memory-g.Context)
			require.Positive(t, g.SMs*g.ThreadsPerSM)
		}
	})
}
