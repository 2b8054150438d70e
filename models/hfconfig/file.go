package hfconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/nearest"
)

// configName is the file name of a configuration in a folder.
const configName = "config.json"

// hubName matches the name of a model on the Hugging Face hub.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// modelFileName matches file names such as "folder/model.pt", which hubName matches, too.
var modelFileName = regexp.MustCompile(`\.(json|py|pt2?|pth|ckpt|bin|safetensors|onnx|vprof)$`)

// configPath returns the path of the config.json for a path or a name on the hub. It expands "~/", which shells do not
// expand after "hf:".
func configPath(path string) string {
	if rest, ok := strings.CutPrefix(filepath.ToSlash(path), "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, rest)
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(path, configName)
	case err != nil && hubName.MatchString(path):
		return cmp.Or(hub.CachedFile(path, "", configName), path)
	}
	return path
}

// howToGet returns advice on where to get a model's configuration; empty for a path of a file.
func howToGet(path string) string {
	switch {
	case strings.HasSuffix(path, ".json"):
		return ""
	case !hubName.MatchString(path):
		return fmt.Sprintf("; name a %s, a folder that has one, or a model of the hub with its organization, like "+
			"%s:Qwen/Qwen3-8B, whose %[1]s is in the hub's cache", configName, Scheme)
	}
	meant := ""
	if near := nearest.LikelyTypo(path, slices.Sorted(maps.Keys(ofHub()))); near != "" {
		meant = fmt.Sprintf("; did you mean %s:%s?", Scheme, near)
	}
	folder := filepath.Base(path)
	return fmt.Sprintf("%s; with a network, \"hf download %s config.json --local-dir %s\" gets it for %s:%s/%s; "+
		"\"vprof run -- python train.py\" needs none", meant, path, folder, Scheme, folder, configName)
}

// readFile reads a file of at most [mostBytes].
func readFile(path string) ([]byte, error) {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = input.FileErrorf(path, "the file is larger than %d MiB, so it is no configuration; name the model's "+
			"config.json", mostBytes>>20)
	}
	return data, err
}

// modelName returns the model's name: the file's, or the folder's if the file is called config.json. A snapshot in the
// hub's cache has the name of its repository.
func (r *reader) modelName() string {
	path, err := filepath.Abs(r.file)
	if err != nil {
		path = r.file
	}
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if base == configName {
		name = filepath.Base(dir)
		if up := filepath.Dir(dir); filepath.Base(up) == "snapshots" {
			if _, repository, ok := strings.Cut(filepath.Base(filepath.Dir(up)), "models--"); ok {
				name = repository[strings.LastIndex(repository, "--")+1:]
				name = strings.TrimPrefix(name, "-")
			}
		}
	}
	if name = cleanName(name); name != "" {
		return name
	}
	var from string
	if json.Unmarshal(r.raw["_name_or_path"], &from) == nil {
		name = cleanName(from[strings.LastIndex(from, "/")+1:])
	}
	return cmp.Or(name, "model")
}

// cleanName removes characters that a model's name may not have, and shortens the name to 64.
func cleanName(name string) string {
	const most = 64
	name = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._+-", c) {
			return c
		}
		return -1
	}, name)
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most])
	}
	return strings.Trim(name, ".")
}
