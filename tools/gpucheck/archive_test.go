package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// unpacked returns the files of an archive by name.
func unpacked(t *testing.T, archive string) map[string]string {
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := map[string]string{}
	for from := tar.NewReader(zipped); ; {
		head, err := from.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(from)
		require.NoError(t, err)
		files[head.Name] = string(text)
	}
}

// An archive reveals neither the machine, nor its owner, nor its processes.
func TestAnArchiveHasNoNames(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	t.Setenv("HOME", "/home/ada-lovelace")
	t.Setenv("USER", "ada-lovelace")
	out := filepath.Join(t.TempDir(), "check")
	require.NoError(t, os.MkdirAll(filepath.Join(out, "torch"), 0o755))
	secret := []string{"b2f1a3c0", "1324021", "900-21010", "python3", "4321", host, "lovelace", "secret_project"}
	for name, text := range map[string]string{
		"sweep.json": `{"devices":[{"name":"cuda:0","uuid":"GPU-b2f1a3c0-0000-1111-2222-333344445555","host":"` +
			host + `"}],` +
			`"warnings":[{"what":"cuda:0 is also used by python3 secret_project (4321), which holds 2.00 GiB"}]}`,
		"nvidia-smi.txt": `GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100
    Serial Number                         : 1324021
    GPU UUID                              : MIG-b2f1a3c0-0000-1111-2222-333344445555
    GPU Part Number                       : 900-21010
    Processes
        GPU instance ID                   : N/A
            Name                          : python3 secret_project
    Clocks                                : 1410 MHz
`,
		"summary.md": "the kernel log: " + host + " NVRM: Xid (PCI:0000:01:00): 13, pid='4321', " +
			"name=python3\nrun in /home/ada-lovelace/secret\n",
		"torch/mlp.pt2":     "lovelace",
		"torch/mlp.jsonl":   `{"peak": 1}`,
		"doctor.json":       `{"gpus":[{"uuid":"GPU-b2f1a3c0-0000-1111-2222-333344445555"}]}`,
		"coefficients.yaml": "inputs: []\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(out, name), []byte(text), 0o600))
	}
	archive, err := pack(out)
	require.NoError(t, err)
	require.Equal(t, out+".tar.gz", archive)
	files := unpacked(t, archive)
	require.Len(t, files, 7)
	for name, text := range files {
		for _, s := range secret {
			require.NotContains(t, text, s, name)
		}
	}
	require.Contains(t, files["check/nvidia-smi.txt"], "NVIDIA A100")
	require.Contains(t, files["check/nvidia-smi.txt"], "1410 MHz", "what follows the processes stays")
	require.Contains(t, files["check/sweep.json"], "which holds 2.00 GiB")
	for _, what := range []string{
		"UUIDs of GPUs: 3", "serial and part numbers: 2", "processes on GPUs: 2",
		"file torch/mlp.pt2: 1", "names of hosts: 2",
	} {
		require.Contains(t, files["check/OMITTED.txt"], what)
	}
}
