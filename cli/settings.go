package cli

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// settings are the flags whose defaults users can set. A flag on the command line comes first, then the environment
// (VPROF_GPU), the project's file, and the user's file.
var settings = []string{coefficientsFlag, "color", "gpu", "host-memory", offlineFlag, quietFlag, "torch", "wide"}

const (
	// projectFile is the name of a project's settings file, searched in the working directory and above.
	projectFile = "vprof.yaml"
	// userFile is the user's settings file, in vprof's folder of the user's configuration.
	userFile = "config.yaml"
	// coefficientsFlag is the setting whose value is a path relative to the settings file.
	coefficientsFlag = "coefficients"
	offlineFlag      = "offline"
	quietFlag        = "quiet"
)

// A setting is the value of a setting with its source.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is a variable of the environment or a file.
	Source string `json:"source"`
}

// findSettings returns the settings of the environment, the working directory's project and the user, by name.
func findSettings() (map[string]setting, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	found := map[string]setting{}
	var files []string
	if config, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(config, "vprof", userFile))
	}
	if folder := projectFolder(here); folder != "" {
		files = append(files, filepath.Join(folder, projectFile))
	}
	for _, path := range files {
		of, err := readSettings(path)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, of)
	}
	for _, name := range settings {
		variable := "VPROF_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := os.Getenv(variable); value != "" {
			found[name] = setting{name, value, variable}
		}
	}
	return found, nil
}

// projectFolder returns the folder of a directory's project file, there or above; empty without one.
func projectFolder(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, projectFile)); !errors.Is(err, fs.ErrNotExist) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// readSettings reads a settings file, which may be missing.
func readSettings(path string) (map[string]setting, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var values map[string]yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, usagef("%s: %s", path, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	found := map[string]setting{}
	for name, node := range values {
		switch {
		case !slices.Contains(settings, name):
			return nil, usagef("%s: line %d: unknown setting %q; use one of %s", path, node.Line, name,
				strings.Join(settings, ", "))
		case node.Kind != yaml.ScalarNode:
			return nil, usagef("%s: line %d: %s: need one value, not a list or a group", path, node.Line, name)
		case name == coefficientsFlag:
			node.Value = relativeToSettings(path, node.Value)
		}
		found[name] = setting{name, node.Value, path}
	}
	return found, nil
}

// relativeToSettings returns the path of a coefficients file, which is relative to the settings file that names it.
func relativeToSettings(path, value string) string {
	file, name := coefficients.SplitFileName(value)
	if file == "" || file == "none" || filepath.IsAbs(file) {
		return value
	}
	return strings.TrimSuffix(filepath.Join(filepath.Dir(path), file)+"#"+name, "#")
}

// applySettings sets the flags that the command line does not set. Such a flag does not count as given.
func applySettings(cmd *cobra.Command) error {
	found, err := findSettings()
	if err != nil {
		return err
	}
	for _, name := range settings {
		s, set := found[name]
		flag := cmd.Flag(name)
		if !set || flag == nil || flag.Changed {
			continue
		}
		if err := flag.Value.Set(s.Value); err != nil {
			return usagef("%s: %s %q: %w", s.Source, name, s.Value, err)
		}
	}
	return nil
}
