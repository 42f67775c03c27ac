// A tree of digests over the files of a folder: equal digests mean equal contents below, so what two states of a folder
// differ in is found by going down where digests differ and nowhere else.
//
// Value type, immutable once made. Thread safety: const methods from any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace tandem::envs {

struct FileDigest {
  std::string path;  // names with slashes between them
  Digest digest;     // of the content
};

class MerkleTree {
 public:
  MerkleTree() : MerkleTree(std::vector<FileDigest>()) {}
  // A tree of paths in any order, each once. A path that is also a folder of another one counts as both.
  explicit MerkleTree(const std::vector<FileDigest>& files);

  const Digest& root() const { return root_.digest; }

 private:
  struct Node {
    Digest digest;
    std::map<std::string, Node, std::less<>> folders;
    std::map<std::string, Digest, std::less<>> files;
  };
  static void close(Node& node);
  static void collect(const Node& node, const std::string& path, std::vector<std::string>& paths);
  static void compare(const Node& before, const Node& after, const std::string& path, std::vector<std::string>& paths);
  friend std::vector<std::string> changed_paths(const MerkleTree& before, const MerkleTree& after);

  Node root_;
};

// Files that are new, gone, or have another content, in the order of the tree.
std::vector<std::string> changed_paths(const MerkleTree& before, const MerkleTree& after);

}  // namespace tandem::envs
