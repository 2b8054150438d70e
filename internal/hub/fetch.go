package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/rewrite"
)

const (
	// maxBytes bounds a fetched file, which describes a model and has no weights.
	maxBytes = 4 << 20
	// requestTimeout bounds a request: a verb that waits for the hub should not seem to hang.
	requestTimeout = 10 * time.Second
)

// A Client fetches descriptions of models from Hugging Face's hub into the cache that it shares with huggingface_hub.
type Client struct {
	// Endpoint is the address of the hub. Token, by default the user's, goes to its host alone.
	Endpoint, Token string
	// Announce is called with a description of each file before it is fetched; it may be nil.
	Announce func(what string)
}

// Default is the client of this process; nil fetches nothing. The command line sets it, tests leave it.
var Default *Client

// FromEnvironment returns a client of HF_ENDPOINT; nil if HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the network.
func FromEnvironment(announce func(string)) *Client {
	for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToUpper(os.Getenv(name)) {
		case "1", "ON", "YES", "TRUE":
			return nil
		}
	}
	return &Client{
		Endpoint: strings.TrimSuffix(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"),
		Announce: announce,
	}
}

// userToken returns the token of HF_TOKEN or of "hf auth login"; empty without one.
func userToken() string {
	if token := os.Getenv("HF_TOKEN"); token != "" {
		return token
	}
	token, err := os.ReadFile(cmp.Or(os.Getenv("HF_TOKEN_PATH"), filepath.Join(hubFolder(), "token")))
	if err != nil || len(token) >= 1<<10 {
		return ""
	}
	return strings.TrimSpace(string(token))
}

// commitPattern matches a commit as the hub names it. It becomes a folder's name.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Fetch fetches a file of a repository ("org/name") at a revision (empty is "main") and returns its path in the cache.
// The error describes what to do.
func (c *Client) Fetch(name, revision, file string) (path string, err error) {
	revision = cmp.Or(revision, "main")
	address, err := url.JoinPath(c.Endpoint, name, "resolve", url.PathEscape(revision), file)
	if err != nil {
		return "", fmt.Errorf("HF_ENDPOINT %q: %w", c.Endpoint, err)
	}
	if c.Announce != nil {
		c.Announce(fmt.Sprintf("%s of %s from %s", file, name, c.Endpoint))
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	response, err := c.get(ctx, address)
	if err != nil {
		return "", connectionError(c.Endpoint, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", statusError(name, response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return "", connectionError(c.Endpoint, err)
	case len(data) > maxBytes:
		return "", fmt.Errorf("%s of %s on the hub is larger than the limit of %d MiB", file, name, maxBytes>>20)
	}
	return storeInCache(name, revision, response.Header.Get("X-Repo-Commit"), file, data)
}

// get requests an address. It sends the token only to the endpoint's host, not to subdomains after a redirect.
func (c *Client) get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "vprof")
	if token := cmp.Or(c.Token, userToken()); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	commit, host := "", request.URL.Host
	client := http.Client{CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if next.URL.Host != host || next.URL.Scheme != request.URL.Scheme {
			next.Header.Del("Authorization")
		}
		commit = cmp.Or(commit, next.Response.Header.Get("X-Repo-Commit"))
		if len(before) > 5 {
			return errors.New("the server redirected more than five times; check HF_ENDPOINT")
		}
		return nil
	}}
	response, err := client.Do(request)
	if err == nil && response.Header.Get("X-Repo-Commit") == "" {
		response.Header.Set("X-Repo-Commit", commit)
	}
	return response, err
}

// connectionError explains a failed request without its address, which the error of net/http repeats.
func connectionError(endpoint string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("cannot reach %s: %w", endpoint, err)
}

func statusError(name string, status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the hub has no public model %s: it is gated, private or misspelled; accept its license on "+
			"the hub and set HF_TOKEN", name)
	case http.StatusNotFound:
		return fmt.Errorf("the Hugging Face Hub has no model %s, or the model lacks this file; check its name", name)
	}
	return fmt.Errorf("the Hugging Face Hub answered %d %s; try again later", status, http.StatusText(status))
}

// storeInCache writes a file into the cache, where huggingface_hub finds it, and returns its path.
func storeInCache(name, revision, commit, file string, data []byte) (string, error) {
	repository := filepath.Join(cacheFolder(), "models--"+strings.ReplaceAll(name, "/", "--"))
	if !commitPattern.MatchString(commit) {
		commit = revision
	} else if filepath.IsLocal(revision) {
		if err := write(filepath.Join(repository, "refs", filepath.FromSlash(revision)), []byte(commit)); err != nil {
			return "", err
		}
	}
	if !filepath.IsLocal(commit) || !filepath.IsLocal(file) {
		return "", fmt.Errorf("invalid revision %q of the model: need a branch, tag or commit", commit)
	}
	path := filepath.Join(repository, "snapshots", commit, file)
	return path, write(path, data)
}

// write writes a file and makes its folder.
func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return rewrite.Create(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
