#include "envs/search/merkle_tree.h"

#include "base/text.h"

namespace tandem::envs {
namespace {

// Lengths before texts, so that no two lists of names give the same bytes.
void put(std::string& bytes, char kind, std::string_view name, const Digest& digest) {
  const uint64_t size = name.size();
  bytes += kind;
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(name);
  for (const uint64_t half : {digest.low, digest.high}) bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
}

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + '/' + name;
}

}  // namespace

MerkleTree::MerkleTree(const std::vector<FileDigest>& files) {
  for (const auto& file : files) {
    Node* node = &root_;
    const auto parts = split(file.path, '/');
    for (size_t i = 0; i + 1 < parts.size(); ++i) node = &node->folders[std::string(parts[i])];
    node->files[std::string(parts.back())] = file.digest;
  }
  close(root_);
}

// Depth is bounded by the longest path, which a file system bounds.
void MerkleTree::close(Node& node) {
  std::string bytes;
  for (auto& [name, folder] : node.folders) {
    close(folder);
    put(bytes, 'd', name, folder.digest);
  }
  for (const auto& [name, digest] : node.files) put(bytes, 'f', name, digest);
  node.digest = digest_of(bytes);
}

void MerkleTree::collect(const Node& node, const std::string& path, std::vector<std::string>& paths) {
  for (const auto& [name, folder] : node.folders) collect(folder, below(path, name), paths);
  for (const auto& [name, digest] : node.files) paths.push_back(below(path, name));
}

void MerkleTree::compare(const Node& before, const Node& after, const std::string& path,
                         std::vector<std::string>& paths) {
  if (before.digest == after.digest) return;
  for (const auto& [name, folder] : before.folders) {
    const auto found = after.folders.find(name);
    if (found == after.folders.end()) {
      collect(folder, below(path, name), paths);
    } else {
      compare(folder, found->second, below(path, name), paths);
    }
  }
  for (const auto& [name, folder] : after.folders) {
    if (!before.folders.contains(name)) collect(folder, below(path, name), paths);
  }
  for (const auto& [name, digest] : before.files) {
    const auto found = after.files.find(name);
    if (found == after.files.end() || found->second != digest) paths.push_back(below(path, name));
  }
  for (const auto& [name, digest] : after.files) {
    if (!before.files.contains(name)) paths.push_back(below(path, name));
  }
}

std::vector<std::string> changed_paths(const MerkleTree& before, const MerkleTree& after) {
  std::vector<std::string> paths;
  MerkleTree::compare(before.root_, after.root_, "", paths);
  return paths;
}

}  // namespace tandem::envs
