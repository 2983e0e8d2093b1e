package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// ResultBytesMax is how much a shard may store. An object holds a MiB, but
// hundreds of these share one etcd.
const ResultBytesMax = 256 << 10

// How long a pod tries to store what it took minutes to find.
const (
	storeTimeout  = 5 * time.Minute
	storeInterval = 2 * time.Second
)

// ShardOfPod returns which of the shards the calling pod is to do.
func ShardOfPod(shards string) (string, error) {
	names := strings.Split(shards, ",")
	index, err := strconv.Atoi(os.Getenv(indexVariable))
	if err != nil || index < 0 || index >= len(names) {
		return "", fmt.Errorf("%s is %q, want an index below %d: this program is for the pods of a fleet", indexVariable, os.Getenv(indexVariable), len(names))
	}
	return names[index], nil
}

// Store stores the result of a shard where the fleet finds it. If it is there
// already, an earlier pod of the same shard stored it and died before it could
// say so: equal shards have equal results, so that one stays.
func Store(ctx context.Context, config *rest.Config, namespace, shard string, data []byte) error {
	if len(data) > ResultBytesMax {
		return fmt.Errorf("storing shard %s: %d bytes are more than %d", shard, len(data), ResultBytesMax)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("storing shard %s: %w", shard, err)
	}
	result := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: resultName(shard)}, BinaryData: map[string][]byte{resultKey: data}, Immutable: ptr.To(true),
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var last error
	err = wait.PollUntilContextCancel(ctx, storeInterval, true, func(ctx context.Context) (bool, error) {
		_, last = core.CoreV1().ConfigMaps(namespace).Create(ctx, result, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(last) {
			last = nil
		}
		return last == nil, lasting(last)
	})
	if err != nil {
		return fmt.Errorf("storing shard %s: %w", shard, errors.Join(err, last))
	}
	return nil
}

// lasting returns an error that waiting does not cure, and nil for others.
func lasting(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err) {
		return err
	}
	return nil
}
