//go:build linux

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// elsewhere matches the commands of pages that a test of this package cannot run, by the reason. Each must match one,
// so that none stays here for nothing.
var elsewhere = map[string][]string{
	"needs a GPU, or runs on one": {
		`^\./vprof `, `^vprof monitor`, `--device cuda:0 --shard`, `^vprof calibrate `, `--coefficients coefficients.yaml`,
	},
	"needs a cluster":                  {`--on slurm`, `^vprof fleet (status|collect|cancel|merge) `},
	"needs packages of an index":       {`^vprof bisect`, `venv-2`, `^vprof compare 2\.9`},
	"needs timm or NVIDIA's libraries": {`capture timm`, `--model vit.pt2`, `^vprof capture .*--compile`},
	"runs for minutes":                 {`^vprof fit .*-- python`, `torchrun`, `smoke --run`, `--lengths`},
	"is a line of GitLab's":            {`^- vprof`},
}

// needsTorch matches commands that need PyTorch for CUDA, or a file that such a command writes.
var needsTorch = regexp.MustCompile(`python |^vprof capture|mine\.pt2|tagger\.vprof`)

// oomLog is an error as PyTorch writes it.
const oomLog = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of " +
	"14.74 GiB of which 512.00 MiB is free. Process 7 has 14.24 GiB memory in use. Of the allocated memory 13.50 GiB is " +
	"allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"

// Every command of the README, of the pages for users and of the page for agents runs in a clone; that something does
// not fit is an answer. Commands that need PyTorch run where python has it.
func TestEveryCommandOfPagesRuns(t *testing.T) {
	sample.Alone(t)
	torch := exec.CommandContext(t.Context(), "python", "-c", "import torch; assert torch.version.cuda").Run() == nil
	pages, err := filepath.Glob(pagesForUsersNamed)
	require.NoError(t, err)
	runs, matched, ran := 0, map[string]bool{}, map[string]bool{}
	for _, path := range append([]string{"../README.md", skillFile}, pages...) {
		folder := clone(t)
		var plain [][]string
		for _, block := range commandsOf(t, path) {
			block = slices.DeleteFunc(block, func(line string) bool { return notHere(line, matched) })
			if !slices.ContainsFunc(block, needsTorch.MatchString) {
				plain = append(plain, slices.DeleteFunc(block, func(line string) bool { return known(line, ran) }))
			} else if torch {
				runs += runBlock(t, folder, path, block)
			}
		}
		if path != "../README.md" {
			plain = sample.OfSlow(plain)
		}
		for _, block := range plain {
			runs += runBlock(t, folder, path, block)
		}
	}
	require.GreaterOrEqual(t, runs, 20)
	for why, patterns := range elsewhere {
		for _, pattern := range patterns {
			require.True(t, matched[pattern], "no command %s: %s", why, pattern)
		}
	}
}

// known reports whether a command ran before, on another page or with the same file by another name, and notes it.
func known(line string, ran map[string]bool) bool {
	line = strings.ReplaceAll(line, "train.yaml", "examples/axolotl.yaml")
	found := ran[line]
	ran[line] = true
	return found
}

// notHere reports whether a command is one of [elsewhere], and notes the pattern.
func notHere(line string, matched map[string]bool) (found bool) {
	for _, patterns := range elsewhere {
		for _, pattern := range patterns {
			if regexp.MustCompile(pattern).MatchString(line) {
				matched[pattern], found = true, true
			}
		}
	}
	return found
}

// clone returns a folder with the files of the repository that commands name, and files that only a reader has.
func clone(t *testing.T) string {
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, "examples"), os.DirFS("../examples")))
	snapshot, err := os.ReadFile("../bench/observe/snapshot/testdata/oom.pickle")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "snapshot.pickle"), snapshot, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "error.log"), []byte(oomLog), 0o644))
	require.NoError(t, os.Symlink("examples/axolotl.yaml", filepath.Join(folder, "train.yaml")))
	require.NoError(t, os.Symlink("examples/train.py", filepath.Join(folder, "train.py")))
	return folder
}

// tableCommand finds the commands of the page for agents, which are in a table.
var tableCommand = regexp.MustCompile("(?m)^\\| .* \\| `(vprof [^`]+)`")

// commandsOf returns the lines of a page that start vprof, by the block of code.
func commandsOf(t *testing.T, path string) (blocks [][]string) {
	text := strings.ReplaceAll(readPage(t, path), "\\\n", "")
	for _, block := range codeOfPages.FindAllString(text, -1) {
		var lines []string
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(strings.TrimPrefix(line, "$ "))
			if regexp.MustCompile(`^(- |\./|sbatch .*|echo .*|python .*)?"?vprof `).MatchString(line) {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			blocks = append(blocks, lines)
		}
	}
	if path == skillFile {
		for _, command := range tableCommand.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, []string{command[1]})
		}
	}
	return blocks
}

// runBlock runs commands in a folder, without a network and a cache of the hub, and returns how many.
func runBlock(t *testing.T, folder, path string, block []string) int {
	for _, line := range block {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir(), "HF_HUB_OFFLINE=1", "HF_ENDPOINT=")
		out, err := cmd.CombinedOutput()
		cancel()
		code := cmd.ProcessState.ExitCode()
		require.Contains(t, []int{int(exitFine), int(exitNegative)}, code, "%s: %s: %v\n%s", path, line, err, out)
	}
	return len(block)
}
